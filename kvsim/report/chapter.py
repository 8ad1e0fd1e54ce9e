"""What the chapters of the book call: traces by name, committed results, glued numbers."""

import base64
import inspect
import json
import re
from collections.abc import Hashable, Mapping, Sequence
from types import ModuleType
from typing import Any

import matplotlib.pyplot as plt
import pandas as pd
from IPython import get_ipython
from IPython.display import Code, Markdown, display
from matplotlib.figure import Figure
from myst_nb import glue

from kvsim.report import figures, pictures, rerun, tables
from kvsim.report.results import RESULTS, load_table
from kvsim.traces import opening
from kvsim.traces.trace import Trace

SENTENCE = re.compile(r"[A-Z].{18,}[.!?]", re.DOTALL)


def begin() -> None:
    """Set the style of the book's figures and tables."""
    figures.use_style()
    pd.set_option("display.max_rows", 200, "display.max_columns", 40, "display.width", 120)
    pd.set_option("display.max_colwidth", None)
    pd.set_option("display.float_format", "{:,.4g}".format)
    shell = get_ipython()
    if shell:
        shell.display_formatter.formatters["text/html"].for_type(pd.DataFrame, as_html)


def as_html(frame: pd.DataFrame) -> str:
    """Return a table without a caption as the pages show it."""
    return tables.Table(frame)._repr_html_()


def table(
    frame: pd.DataFrame,
    caption: str,
    *,
    rows: int = tables.ROWS,
    columns: int | Sequence[str] = tables.COLUMNS,
    unit: str | Mapping[Hashable, str] = "",
    key: str = "table",
) -> tables.Table:
    """Return a table with a caption; see `kvsim.report.tables.Table`."""
    return tables.Table(frame, caption, rows, columns, unit, key)


def tell(**values: Any) -> None:
    """Glue numbers that the prose names; floats are rounded to four places first.

    Parameters
    ----------
    **values
        Key and value; give text for a number with a unit.
    """
    for name, value in values.items():
        glue(name, _plain(value), display=False)


def show(
    name: str,
    panels: Sequence[Figure],
    *,
    caption: str,
    alt: str,
    experiment: str = "",
) -> None:
    """Show panels: one picture in a notebook, a numbered figure on the page.

    Parameters
    ----------
    name : str
        What the prose refers to, as in ``{numref}`finding-bound` ``.
    panels : sequence of Figure
        As the functions of `kvsim.report.figures` return them.
    caption : str
        In MyST: what is drawn, with traces, seed and window.
    alt : str
        A sentence or two for those who do not see the figure: what it shows, and what follows.
    experiment : str
        The experiment whose committed results are drawn; the page offers their provenance.

    Raises
    ------
    ValueError
        If `alt` is no sentence.
    """
    if not SENTENCE.fullmatch(alt):
        raise ValueError(f"figure {name}: alt is {alt!r}; write a sentence that says what it shows")
    titles = [panel.axes[0].get_title(loc="left") for panel in panels]
    alts = [alt, *(f"Panel {title} of the same figure." for title in titles[1:])]
    figure = {
        "name": name,
        "caption": " ".join(caption.split()),
        "panels": [
            {"alt": text, "svg": pictures.svg(panel)}
            for text, panel in zip(alts, panels, strict=True)
        ],
        "provenance": provenance(experiment) if experiment else [],
    }
    data = {"image/png": base64.b64encode(pictures.png(panels)).decode(), "text/plain": alt}
    display(data, metadata={"kvsim": figure}, raw=True)
    for panel in panels:
        plt.close(panel)


def provenance(experiment: str) -> list[list[tuple[str, str]]]:
    """Return where the committed results of an experiment come from, what and how, by trace."""
    return [
        [
            ("trace", stored["trace"]),
            ("SHA-256 of its source", stored["source_sha256"]),
            (
                "parameters",
                json.dumps(stored["parameters"]) if stored["parameters"] else "defaults",
            ),
            ("command", f"python -m kvsim.experiments {experiment} --trace {stored['trace']}"),
            ("versions", ", ".join(f"{name} {text}" for name, text in stored["versions"].items())),
        ]
        for path in sorted(RESULTS.glob(f"*/{experiment}.json"))
        for stored in [json.loads(path.read_text())]
    ]


def committed(experiment: str, table: str, **where: Any) -> pd.DataFrame:
    """Return a committed table of all traces, filtered by column values.

    Parameters
    ----------
    experiment, table : str
        As stored by `python -m kvsim.experiments`.
    **where
        Column and the value to keep.
    """
    rows = load_table(experiment, table)
    for column, value in where.items():
        rows = rows[rows[column] == value]
    return rows.reset_index(drop=True)


def numbers(
    table: pd.DataFrame, key: str, value: str, *, percent: bool = False
) -> dict[str, object]:
    """Return a column as names and values for `tell`: ``<trace>_<key>``; missing ones are left out.

    Parameters
    ----------
    table : DataFrame
        With a column `trace`.
    key, value : str
        Columns of names and of values.
    percent : bool
        Write shares as percentages.
    """
    known = table[pd.to_numeric(table[value], errors="coerce").notna()]
    names = known["trace"] + "_" + known[key].astype(str)
    values = pd.to_numeric(known[value])
    shown = [f"{100 * share:.1f} %" for share in values] if percent else values.tolist()
    return dict(zip(names, shown, strict=True))


def source(module: ModuleType) -> Code:
    """Return a module's source, highlighted."""
    return Code(inspect.getsource(module), language="python")


def source_file(path: str) -> Code:
    """Return a Python file beside the chapters, highlighted."""
    return Code(filename=path, language="python")


def open_trace(name: str) -> Trace:
    """Open a known trace or a path, without progress, for a chapter's live part."""
    return opening.open_trace(name, window=None)


def run_this_page(name: str) -> Markdown:
    """Return how to run a page again with other parameters: the last section of every chapter."""
    return Markdown(rerun.instructions(name))


def _plain(value: Any) -> Any:
    if hasattr(value, "item"):
        value = value.item()
    return round(value, 4) if isinstance(value, float) else value
