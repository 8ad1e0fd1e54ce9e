"""Sphinx extension: "Run this page" names the repository and offers a file of parameters."""

import ast
import json
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

from kvsim.report import rerun

TAGS = ("parameters", "injected-parameters")


def name_the_repository(app: Sphinx, docname: str, source: list[str]) -> None:
    """Put the address that the build is told in place of the words for it."""
    address = app.config.html_theme_options.get("repository_url")
    if address and app.env.doc2path(docname, False).endswith(".ipynb"):
        clone = f"git clone {address}\\ncd {address.rpartition('/')[2]}"
        source[0] = source[0].replace(rerun.CLONE, clone)


def write_parameter_files(app: Sphinx, error: Exception | None) -> None:
    """Write a ready-made parameter file for every chapter, where its page links to it."""
    if error or app.builder.format != "html":
        return
    for docname in sorted(app.env.found_docs):
        path = Path(app.env.doc2path(docname))
        if path.suffix == ".ipynb":
            file = Path(app.outdir, docname).parent / "params" / f"{path.stem}.yml"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(
                rerun.parameter_file(path.stem, parameters(json.loads(path.read_text())))
            )


def parameters(notebook: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters of an executed notebook: the chapter's own, and those given."""
    values: dict[str, Any] = {}
    for cell in notebook["cells"]:
        if set(TAGS) & set(cell["metadata"].get("tags", ())):
            tree = ast.parse("".join(cell["source"]))
            for line in tree.body:
                if isinstance(line, ast.Assign) and isinstance(line.targets[0], ast.Name):
                    values[line.targets[0].id] = value_of(line.value)
    return values


def value_of(node: ast.expr) -> Any:
    """Return the value of a literal, or of a product of such as in ``8 * 3600``."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        return value_of(node.left) * value_of(node.right)
    return ast.literal_eval(node)


def setup(app: Sphinx) -> dict[str, bool]:
    """Register with Sphinx."""
    app.connect("source-read", name_the_repository)
    app.connect("build-finished", write_parameter_files)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
