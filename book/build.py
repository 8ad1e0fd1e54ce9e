"""Execute the chapters: book/NN_x.md and book/params/NN_x.yml become book/NN_x.ipynb.

    python book/build.py                      the chapters whose inputs changed
    python book/build.py --force              all chapters
    python book/build.py belady            one chapter, whether stale or not
    python book/build.py --force --times      also note how long each takes, for its last section
    python book/build.py belady --params mine.yml --output mine.ipynb
                                              one chapter with other parameters, put elsewhere

A parameter file is YAML, `name: value`; it need name only what differs from the chapter's own
`parameters` cell. The executed notebook is scrubbed of all that differs from run to run and then
moved into place, so a failing chapter leaves the old notebook and a rebuild changes no byte.
"""

import argparse
import ast
import base64
import hashlib
import io
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import jupytext
import nbformat
import numpy as np
import papermill
import yaml
from papermill.exceptions import PapermillExecutionError
from PIL import Image

from kvsim.report import rerun

ROOT = Path(__file__).resolve().parent.parent
BOOK = ROOT / "book"
STAMPS = ROOT / "_build" / "executed"  # one digest of inputs for each chapter

# Whatever a page may show comes from these, its own source aside.
INPUTS = (
    *("kvsim/**/*.py", "results/**/*", "data/sample*", "constraints.txt"),
    *("book/build.py", "book/times.yml"),
)

# All that a notebook says of its kernel; the version of Python would differ between machines.
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python", "pygments_lexer": "ipython3"},
}

ADDRESS = re.compile(r"0x[0-9a-fA-F]{6,}")
GLUED = re.compile(r"\{glue:text\}`([^`]+)`")
RECORD = "application/papermill.record/text/plain"
NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
NOISE = 8  # grey levels of 255 by which a pixel may differ between two machines' rendering
NUDGE = 0.05  # points by which a coordinate may differ


class BuildError(Exception):
    """What is wrong with a chapter or its parameters, for the user to read."""


def chapters() -> list[str]:
    """Names of the notebook chapters, in the order of the table of contents."""
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text())
    return [Path(file).stem for file in pages(toc) if file.endswith(".ipynb")]


def pages(toc: Any) -> Iterator[str]:
    """Every page of the table of contents, the first one too, at whatever depth."""
    if isinstance(toc, dict):
        yield from (toc[key] for key in ("root", "file") if key in toc)
        toc = list(toc.values())
    if isinstance(toc, list):
        for entry in toc:
            yield from pages(entry)


def digest(chapter: str) -> str:
    """SHA-256 over all that the chapter's notebook depends on."""
    own = [BOOK / f"{chapter}.md", _params(chapter)]
    shared = sorted({path for glob in INPUTS for path in ROOT.glob(glob) if path.is_file()})
    sha = hashlib.sha256()
    for path in own + shared:
        sha.update(f"{path.relative_to(ROOT)}\0{path.stat().st_size}\0".encode())
        sha.update(path.read_bytes())
    return sha.hexdigest()


def is_stale(chapter: str) -> bool:
    """Whether the chapter's notebook was made from other inputs, or cannot be told."""
    stamp = STAMPS / chapter
    return not (
        (BOOK / f"{chapter}.ipynb").exists()
        and stamp.exists()
        and stamp.read_text() == digest(chapter)
    )


def _params(chapter: str) -> Path:
    return BOOK / "params" / f"{chapter}.yml"


def read_params(path: Path) -> dict[str, Any]:
    """Parameters in a YAML file; an empty file has none."""
    try:
        params = yaml.safe_load(path.read_text()) or {}
    except (OSError, yaml.YAMLError) as error:
        raise BuildError(f"{path}: {error}") from error
    if not isinstance(params, dict):
        raise BuildError(f"{path}: expected lines of `name: value`")
    return params


def check_params(notebook: Path, params: dict[str, Any]) -> None:
    """Refuse what papermill only warns of, and numbers that YAML reads as text (`1e-3`)."""
    cells = nbformat.read(notebook, as_version=4).cells
    if not any("parameters" in cell.metadata.get("tags", ()) for cell in cells):
        raise BuildError("no cell is tagged `parameters`")
    known = papermill.inspect_notebook(notebook)
    for name, value in params.items():
        if name not in known:
            raise BuildError(f"unknown parameter {name!r}; known: {', '.join(known)}")
        default = _literal(known[name]["default"])
        if isinstance(value, str) and isinstance(default, int | float):
            raise BuildError(f"parameter {name!r}: {value!r} is text, not a number (write 1.0e-3)")


def _literal(source: str) -> Any:
    try:
        return ast.literal_eval(source)
    except (ValueError, SyntaxError):
        return None


def scrub(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """Drop what differs from run to run; execution counts stay, nbval needs them."""
    notebook.metadata = nbformat.from_dict(METADATA)
    for number, cell in enumerate(notebook.cells):
        cell.id = f"cell-{number:02d}"
        tags = cell.metadata.get("tags")
        cell.metadata = nbformat.from_dict({"tags": tags} if tags else {})
        if cell.cell_type == "code":
            cell.outputs = _join_streams(_without_addresses(cell.outputs))
    return notebook


def _without_addresses(value: Any) -> Any:
    """The same outputs with each memory address turned into one token, images untouched."""
    if isinstance(value, str):
        return ADDRESS.sub("0x0", value)
    if isinstance(value, list):
        return [_without_addresses(item) for item in value]
    if isinstance(value, dict):
        return nbformat.from_dict(
            {k: v if _is_picture(k) else _without_addresses(v) for k, v in value.items()}
        )
    return value


def _is_picture(kind: str) -> bool:
    # A glued picture's kind has a prefix of its own.
    return kind.endswith("image/png")


def glued(notebook: nbformat.NotebookNode) -> dict[str, str]:
    """Values by the names under which the cells glued them, as the text shows them."""
    values = {}
    for cell in notebook.cells:
        for output in cell.get("outputs", ()):
            record = output.get("metadata", {}).get("scrapbook")
            if record and RECORD in output.data:
                value = _literal(output.data[RECORD])
                text = output.data[RECORD] if value is None else value
                values[record["name"]] = str(text)
    return values


def with_values(text: str, values: dict[str, str]) -> str:
    """The text with each glued number written out, as a reader outside the book needs it.

    Raises
    ------
    BuildError
        If the text names what no cell glued.
    """
    unknown = [name for name in GLUED.findall(text) if name not in values]
    if unknown:
        raise BuildError(f"the text names {unknown[0]!r}, which no cell tells")
    return GLUED.sub(lambda match: values[match[1]], text)


def write_out(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """Put the glued numbers into the text and the captions of an executed notebook."""
    values = glued(notebook)
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            cell.source = with_values(cell.source, values)
        for output in cell.get("outputs", ()):
            if figure := output.get("metadata", {}).get("kvsim"):
                figure["caption"] = with_values(figure["caption"], values)
    return notebook


def _join_streams(outputs: list[nbformat.NotebookNode]) -> list[nbformat.NotebookNode]:
    """One output for each run of prints: where the kernel flushed is a matter of timing."""
    joined: list[nbformat.NotebookNode] = []
    for output in outputs:
        last = joined[-1] if joined else None
        if last and output.output_type == last.output_type == "stream" and output.name == last.name:
            last.text += output.text
        else:
            joined.append(output)
    return joined


def without(notebook: nbformat.NotebookNode, tag: str) -> nbformat.NotebookNode:
    """Drop the cells with a tag."""
    notebook.cells = [cell for cell in notebook.cells if tag not in cell.metadata.get("tags", ())]
    return notebook


def execute(chapter: str, params: dict[str, Any], output: Path) -> None:
    """Run a chapter with `params` over its own and put the scrubbed notebook at `output`."""
    with tempfile.TemporaryDirectory() as scratch:
        source, executed = Path(scratch, f"{chapter}.ipynb"), Path(scratch, "executed.ipynb")
        notebook = without(jupytext.read(BOOK / f"{chapter}.md", fmt="md:myst"), "own")
        notebook.metadata = nbformat.from_dict(METADATA)
        nbformat.write(notebook, source)
        check_params(source, params)
        notebook = papermill.execute_notebook(
            str(source),
            str(executed),
            params,
            kernel_name="python3",
            cwd=str(BOOK),
            progress_bar=False,
        )
        nbformat.write(write_out(scrub(notebook)), executed)
        if not (output.exists() and looks_same(executed, output)):
            shutil.copy(executed, output.with_suffix(".part"))
            os.replace(output.with_suffix(".part"), output)


def looks_same(one: Path, other: Path) -> bool:
    """Whether two notebooks agree, their images to within the noise of rendering.

    Another processor may round a pixel differently; that is no reason to rewrite a committed page.
    """
    first, first_images = _split_images(one)
    second, second_images = _split_images(other)
    return first == second and all(map(_close, first_images, second_images))


def _split_images(path: Path) -> tuple[nbformat.NotebookNode, list[str]]:
    notebook = nbformat.read(path, as_version=4)
    images = []
    for cell in notebook.cells:
        for output in cell.get("outputs", ()):
            data = output.get("data", {})
            for kind in filter(_is_picture, data):
                images.append(data[kind])
                data[kind] = ""
            for panel in output.get("metadata", {}).get("kvsim", {}).get("panels", ()):
                images.append(panel["svg"])
                panel["svg"] = ""
    return notebook, images


def _close(one: str, other: str) -> bool:
    if one == other:
        return True
    if one.startswith("<svg"):
        return NUMBER.sub("", one) == NUMBER.sub("", other) and all(
            abs(float(a) - float(b)) <= NUDGE
            for a, b in zip(NUMBER.findall(one), NUMBER.findall(other), strict=True)
        )
    first, second = (np.asarray(Image.open(io.BytesIO(base64.b64decode(x)))) for x in (one, other))
    if first.shape != second.shape:
        return False
    return bool(np.abs(first.astype(int) - second).max() <= NOISE)


def run(
    chapter: str, params: dict[str, Any] | None = None, output: Path | None = None
) -> float | None:
    """Execute one chapter, say how it went; return the seconds it took, None if it failed."""
    start = time.perf_counter()
    inputs = "" if output else digest(chapter)  # taken first: an edit meanwhile makes it stale
    try:
        execute(
            chapter,
            read_params(_params(chapter)) if params is None else params,
            output or BOOK / f"{chapter}.ipynb",
        )
    except (BuildError, PapermillExecutionError) as error:
        print(f"{chapter}: {error}", file=sys.stderr, flush=True)
        return None
    seconds = time.perf_counter() - start
    if output is None:
        STAMPS.mkdir(parents=True, exist_ok=True)
        (STAMPS / chapter).write_text(inputs)
    print(f"{chapter}: {seconds:.1f} s", flush=True)
    return seconds


def note_times(seconds: dict[str, float | None]) -> None:
    """Write the classes of running times that the pages state."""
    times = yaml.safe_load(rerun.TIMES.read_text()) if rerun.TIMES.exists() else {}
    times |= {name: rerun.class_of(taken) for name, taken in seconds.items() if taken is not None}
    rerun.TIMES.write_text(
        "# How long the chapters took, from `python book/build.py --force --times`.\n"
        + yaml.safe_dump(times)
    )


def main() -> int:
    """Command line; the exit code is 1 if a chapter failed and 2 if the call was wrong."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("chapter", nargs="?", choices=chapters(), metavar="chapter")
    parser.add_argument("--params", type=Path, help="YAML file of parameters")
    parser.add_argument("--output", type=Path, help="where to put the notebook")
    parser.add_argument("--force", action="store_true", help="also what is not stale")
    parser.add_argument("--times", action="store_true", help="note how long each chapter took")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="chapters at a time")
    args = parser.parse_args()
    if args.params and not args.output:
        parser.error("--params needs --output: the book's own notebooks keep their parameters")
    if args.output and not args.chapter:
        parser.error("--output needs a chapter")

    if args.output:
        try:
            params = read_params(args.params) if args.params else None
        except BuildError as error:
            parser.error(str(error))
        return int(run(args.chapter, params, args.output) is None)

    todo = [args.chapter] if args.chapter else chapters()
    if not (args.force or args.chapter):
        todo = [chapter for chapter in todo if is_stale(chapter)]
    print(f"{len(todo)} of {len(chapters())} chapters to execute", flush=True)
    with ProcessPoolExecutor(args.jobs) as pool:
        seconds = dict(zip(todo, pool.map(run, todo), strict=True))
    if args.times:
        note_times(seconds)
    return int(None in seconds.values())


if __name__ == "__main__":
    sys.exit(main())
