"""What the chapters of the book call: traces by name, committed results, glued numbers."""

import inspect
from types import ModuleType
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from IPython import get_ipython
from IPython.display import Code
from matplotlib.figure import Figure
from myst_nb import glue

from kvsim.experiments.store import load_table
from kvsim.report import figures
from kvsim.traces import opening
from kvsim.traces.trace import Trace


def begin() -> None:
    """Set the style of the book's figures and tables."""
    figures.use_style()
    pd.set_option("display.max_rows", 200, "display.max_columns", 40, "display.width", 120)
    pd.set_option("display.max_colwidth", None)
    pd.set_option("display.float_format", "{:,.4g}".format)
    shell = get_ipython()
    if shell:
        shell.display_formatter.formatters["text/html"].for_type(pd.DataFrame, as_html)


def as_html(table: pd.DataFrame) -> str:
    """Return a table as the pages show it: names as words, nothing where there is no value."""
    words = table.rename(columns=_words)
    numbered = isinstance(table.index, pd.RangeIndex)
    if isinstance(table.index, pd.MultiIndex):
        rows = [tuple(map(_words, row)) for row in table.index]
        names = [_words(name) for name in table.index.names]
        words.index = pd.MultiIndex.from_tuples(rows, names=names)
    elif not numbered:
        words.index = pd.Index(map(_words, table.index), name=_words(table.index.name))
    return str(words.to_html(index=not numbered, na_rep="", float_format=_short, border=0))


def tell(**values: Any) -> None:
    """Glue numbers that the prose names; floats are rounded to four places first.

    Parameters
    ----------
    **values
        Key and value; give text for a number with a unit.
    """
    for name, value in values.items():
        glue(name, _plain(value), display=False)


def show(name: str, figure: Figure) -> None:
    """Glue a figure under a name, for a numbered figure with a caption in the prose."""
    glue(name, figure, display=False)
    plt.close(figure)


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


def _words(name: Any) -> Any:
    if isinstance(name, str):
        return name.replace("_", " ")
    if isinstance(name, bool | np.bool_):
        return "yes" if name else "no"
    return _short(name) if isinstance(name, int | float | np.number) else name


def _short(value: Any) -> str:
    if value != value:  # NaN
        return ""
    text = f"{value:,.4f}".rstrip("0").rstrip(".")
    return f"{value:.1e}" if value and text in ("0", "-0") else text


def _plain(value: Any) -> Any:
    if hasattr(value, "item"):
        value = value.item()
    return round(value, 4) if isinstance(value, float) else value
