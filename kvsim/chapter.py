"""What the chapters of the book call: traces by name, committed results, glued numbers."""

import inspect
from types import ModuleType
from typing import Any

import matplotlib.pyplot as plt
import pandas as pd
from IPython.display import Code
from matplotlib.figure import Figure
from myst_nb import glue

from kvsim import fetch, figures
from kvsim.experiments.store import load_table
from kvsim.trace import Trace


def begin() -> None:
    """Set the style of the book's figures and tables."""
    figures.use_style()
    pd.set_option("display.max_rows", 200, "display.max_columns", 40, "display.width", 120)


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


def source(module: ModuleType) -> Code:
    """Return a module's source, highlighted."""
    return Code(inspect.getsource(module), language="python")


def open_trace(name: str) -> Trace:
    """Open a known trace or a path, without progress, for a chapter's live part."""
    return fetch.open_trace(name)


def _plain(value: Any) -> Any:
    if hasattr(value, "item"):
        value = value.item()
    return round(value, 4) if isinstance(value, float) else value
