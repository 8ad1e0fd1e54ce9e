"""Tables as the pages show them: few rows and columns in the text, the rest folded, with CSV."""

import base64
import re
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np
import pandas as pd

from kvsim.report.words import value_words, words

ROWS, COLUMNS = 8, 7  # shown in the text

# The unit that a name ends in, and the factor from what is stored to what is shown.
UNITS = (
    (re.compile(r"_pp$"), "points", 1.0),
    (re.compile(r"(^|_)(hit_)?gain(_min|_max)?$"), "points", 100.0),
    (re.compile(r"(^|_)(ratio|share|closed|saving)(_min|_max)?$"), "%", 100.0),
    (re.compile(r"_s$"), "s", 1.0),
    (re.compile(r"_h$"), "s", 3600.0),
)
# What a caller may say of columns whose name does not.
GIVEN = {
    "points": ("points", 100.0),
    "pp": ("points", 1.0),
    "%": ("%", 100.0),
    "s": ("s", 1.0),
}


@dataclass(frozen=True)
class Unit:
    """What a column's numbers are shown in: `name` is "points", "%", "s" or "" (a plain number)."""

    name: str = ""
    factor: float = 1.0

    def show(self, value: Any) -> str:
        """Return a cell's text; missing values are empty."""
        if isinstance(value, bool | np.bool_):
            return "yes" if value else "no"
        if not _is_number(value):
            return "" if value is None or value is pd.NA else value_words(str(value))
        if value != value:  # NaN
            return ""
        if self.name == "s":
            return duration(self.factor * float(value))
        if self.name:
            return one_decimal(self.factor * float(value), signed=self.name == "points")
        return plain(value)


def unit_of(name: Hashable) -> Unit:
    """Return the unit that a column's or a quantity's name states, in any of its levels."""
    for level in name if isinstance(name, tuple) else (name,):
        for pattern, unit, factor in UNITS:
            if pattern.search(str(level)):
                return Unit(unit, factor)
    return Unit()


def heading(name: Hashable, unit: Unit) -> str:
    """Return a column's heading, flat where the name has levels, with the unit where it has one."""
    levels = name if isinstance(name, tuple) else (name,)
    shown = [words(level) if isinstance(level, str) else plain(level) for level in levels]
    text = ", ".join(level for level in shown if level)
    return f"{text} ({unit.name})" if unit.name in ("points", "%") else text


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.number) and not isinstance(value, bool)


def one_decimal(value: float, *, signed: bool = False) -> str:
    """Return percent or points as the book writes them: one decimal, never minus zero.

    Parameters
    ----------
    signed : bool
        Write the plus of gains too.
    """
    value = round(value, 1) + 0.0
    text = f"{value:+,.1f}" if signed and value else f"{value:,.1f}"
    return text.replace("-", "−")


def duration(seconds: float) -> str:
    """Return seconds in the unit that a reader thinks in."""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if abs(seconds) >= (2 if unit == "d" else 1) * size:
            return f"{plain(round(seconds / size, 1))} {unit}"
    return f"{plain(seconds)} s"


def plain(value: Any) -> str:
    """Return a number without a unit: thousands apart, at most three significant decimals."""
    if not _is_number(value):
        return str(value)
    size = abs(float(value))
    if float(value).is_integer() or size >= 100:
        text = f"{value:,.0f}"
    elif size >= 0.001:
        text = f"{value:.{2 if size >= 1 else 3}f}".rstrip("0").rstrip(".")
    else:
        text = f"{value:.0e}"
    return "0" if text == "-0" else text.replace("-", "−")


@dataclass(frozen=True)
class Table:
    """A table with a caption: what fits in the text, and all of it folded, sortable, as CSV.

    Parameters
    ----------
    frame : DataFrame
        Shares of 1 and seconds as they are stored; their names say what they are.
    caption : str
        What the table shows, with its traces, seeds and counts.
    rows : int
        Rows in the text.
    columns : int or list of str
        Columns in the text: the first ones, or these.
    unit : {"", "points", "pp", "%", "s"} or dict
        Of fractional numbers whose column does not name a unit, as after pivoting, or by column:
        points and % of shares of 1, pp for points that are stored as points.
    key : str
        Name of the CSV file.
    """

    frame: pd.DataFrame
    caption: str = ""
    rows: int = ROWS
    columns: int | Sequence[str] = COLUMNS
    unit: str | Mapping[Hashable, str] = ""
    key: str = "table"

    def __repr__(self) -> str:
        return self.frame.to_string(max_rows=self.rows, max_cols=COLUMNS)

    def _repr_html_(self) -> str:
        frame = _flat(self.frame)
        chosen = self.columns
        names = list(frame.columns[:chosen] if isinstance(chosen, int) else chosen)
        places = [list(frame.columns).index(name) for name in names]
        shown = self._table(frame.iloc[: self.rows, places], self.caption)
        if len(frame) <= self.rows and len(names) == frame.shape[1]:
            return f'<div class="kv-tables">{shown}{self._download(frame)}</div>'
        size = f"All {plain(len(frame))} rows and {frame.shape[1]} columns"
        whole = self._table(frame, f"{self.caption} {size}.".strip(), "kv-sortable")
        return (
            f'<div class="kv-tables">{shown}<details class="kv-all"><summary>{size}</summary>'
            f"{whole}{self._download(frame)}</details></div>"
        )

    def _table(self, frame: pd.DataFrame, caption: str, kind: str = "") -> str:
        units = [self._unit(name, frame.dtypes.iloc[at]) for at, name in enumerate(frame.columns)]
        heads = "".join(
            f'<th scope="col">{escape(heading(name, unit))}</th>'
            for name, unit in zip(frame.columns, units, strict=True)
        )
        quantities = frame["quantity"] if "quantity" in frame else [""] * len(frame)
        body = "".join(
            f"<tr>{_row(row, units, unit_of(quantity))}</tr>\n"
            for quantity, row in zip(quantities, frame.itertuples(index=False), strict=True)
        )
        label = escape(caption or "table", quote=True)
        title = f"<caption>{escape(caption)}</caption>" if caption else ""
        return (
            f'<div class="kv-table" role="region" tabindex="0" aria-label="{label}">'
            f'<table class="{kind or "kv-short"}">{title}<thead><tr>{heads}</tr></thead>\n'
            f"<tbody>{body}</tbody></table></div>"
        )

    def _unit(self, name: Hashable, kind: Any) -> Unit:
        if not isinstance(self.unit, str):
            given = self.unit.get(name, "")
            return Unit(*GIVEN[given]) if given else unit_of(name)
        named = unit_of(name)
        if named.name or not self.unit or not pd.api.types.is_float_dtype(kind):
            return named
        return Unit(*GIVEN[self.unit])

    def _download(self, frame: pd.DataFrame) -> str:
        data = base64.b64encode(frame.to_csv(index=False, lineterminator="\n").encode()).decode()
        return (
            f'<p class="kv-csv"><a download="{escape(self.key, quote=True)}.csv" '
            f'href="data:text/csv;base64,{data}">CSV of this table</a></p>'
        )


def _flat(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the frame with its index as columns and its columns in one level."""
    if not isinstance(frame.index, pd.RangeIndex):
        index = frame.index.to_frame(index=False)
        index.columns = pd.Index([name or "name" for name in frame.index.names])
        frame = pd.concat([index, frame.reset_index(drop=True)], axis=1)
    names = [_without_empty_levels(name) for name in frame.columns]
    return frame.set_axis(pd.Index(names, tupleize_cols=False), axis=1)


def _without_empty_levels(name: Any) -> Any:
    if not isinstance(name, tuple):
        return name
    levels = tuple(level for level in name if level != "")
    return levels[0] if len(levels) == 1 else levels


def _row(row: Sequence[Any], units: Sequence[Unit], of_row: Unit) -> str:
    cells = []
    for number, (value, unit) in enumerate(zip(row, units, strict=True)):
        is_fraction = isinstance(value, float)
        used = of_row if is_fraction and not unit.name else unit
        text = escape(used.show(value))
        text += " %" if text and used is of_row and used.name == "%" else ""
        sort_by = f' data-v="{used.factor * value:g}"' if used.name == "s" and text else ""
        if number == 0:
            cells.append(f'<th scope="row"{sort_by}>{text}</th>')
        else:
            kind = ' class="n"' if _is_number(value) else ""
            cells.append(f"<td{kind}{sort_by}>{text}</td>")
    return "".join(cells)
