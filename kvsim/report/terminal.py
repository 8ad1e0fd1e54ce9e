"""What the commands show: tables of any width, the forms of files, progress on longer work."""

import csv
import io
import json
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from rich.cells import cell_len
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

PATIENCE = 1.0
NARROWEST = 16  # cells of a column whose text wraps
UNBROKEN = 10**6  # cells of a line where there is no terminal
BORDER = 3  # cells that a column needs besides its text

Row = Mapping[str, Any]
Data = Row | Sequence[Row]


@dataclass(frozen=True)
class Sheet:
    """A table for people, before it is known how wide it may be.

    Parameters
    ----------
    title : str
        The line above.
    rows : sequence of Row
        Their values by field.
    columns : mapping
        Heading by field. Where the width does not do, columns are left out from the last on.
    keys : int
        So many leading columns are never left out.
    wrapping : collection of str
        Fields whose text may wrap between words; everything else is shown on one line, whole.
    remarks : sequence of str
        The lines below.
    header : bool
        Whether to show the headings.
    """

    title: str
    rows: Sequence[Row]
    columns: Mapping[str, str]
    keys: int
    wrapping: frozenset[str] = frozenset()
    remarks: tuple[str, ...] = ()
    header: bool = True

    def cells(self, field: str) -> list[str]:
        """Return the texts of a column, without its heading."""
        return [_shown(field, row[field]) for row in self.rows]

    def is_text(self, field: str) -> bool:
        """Return whether a column holds words, not numbers."""
        return all(isinstance(row[field], str | list) for row in self.rows)

    def least_width(self, field: str) -> int:
        """Return how many cells of the terminal the column needs at least."""
        lines = self.columns[field].splitlines() if self.header else []
        texts = self.cells(field)
        if field in self.wrapping:
            widest = max(map(cell_len, texts), default=0)
            lines += ["x" * min(widest, NARROWEST)]
            texts = [word for text in texts for word in text.split()]
        return max(map(cell_len, (*lines, *texts)), default=0)


class Meter:
    """Progress bars on standard error, once work has taken a second, on a terminal only.

    Used as a context manager; calls say how far the work is.
    """

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True)
        self._lock = threading.Lock()
        self._over = False
        self._bars = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TextColumn("{task.fields[amount]}", markup=False),
            TimeRemainingColumn(),
            console=self._console,
            transient=True,
        )
        self._patience = threading.Timer(PATIENCE, self._start)
        self._patience.daemon = True

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._patience.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._patience.cancel()
        with self._lock:
            self._over = True
            if self._bars.live.is_started:
                self._bars.stop()

    def __call__(self, what: str, done: int, total: int) -> None:
        """Show that `done` of `total` units of `what` are done; a total of 0 is unknown."""
        state: dict[str, Any] = {
            "completed": done,
            "total": total or None,
            "amount": f"{done / total:.0%}" if total else f"{done:,}",
        }
        for task in self._bars.tasks:
            if task.description == what:
                self._bars.update(task.id, **state)
                return
        self._bars.add_task(what, **state)

    def task(self, what: str) -> Callable[[int, int], None]:
        """Return a callback of (done, total) for one kind of work."""
        return lambda done, total: self(what, done, total)

    def _start(self) -> None:
        with self._lock:
            if not self._over:
                self._bars.start()


def as_json(data: Data) -> str:
    """Return `data` as JSON, a row a line."""
    if isinstance(data, Mapping):
        return _dump(data) + "\n"
    return "[" + ",".join(f"\n {_dump(row)}" for row in data) + "\n]\n"


def as_csv(data: Data) -> str:
    """Return `data` as CSV with a header; missing values are empty, lists joined by commas."""
    rows = _rows(data)
    text = io.StringIO()
    writer = csv.DictWriter(text, rows[0] if rows else [], lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({field: _joined(value) for field, value in row.items()})
    return text.getvalue()


def as_parquet(data: Data) -> bytes:
    """Return `data` as a Parquet file; needs pyarrow."""
    import pyarrow
    from pyarrow import parquet

    stream = io.BytesIO()
    parquet.write_table(pyarrow.Table.from_pylist([dict(row) for row in _rows(data)]), stream)
    return stream.getvalue()


def as_markdown(sheet: Sheet) -> str:
    """Return a table as Markdown, with all its columns."""
    headings = (heading.replace("\n", " ") for heading in sheet.columns.values())
    rules = ("---" if sheet.is_text(field) else "--:" for field in sheet.columns)
    rows = zip(*(sheet.cells(field) for field in sheet.columns), strict=True)
    lines = [f"| {' | '.join(row)} |" for row in (headings, rules, *map(_escaped, rows))]
    return "\n\n".join([f"**{sheet.title}**", "\n".join(lines), *sheet.remarks]) + "\n"


def as_text(sheet: Sheet) -> str:
    """Return a table as it looks on standard output.

    On a terminal, columns that do not fit are left out, and a line says which. Elsewhere every
    column is there, on plain lines.
    """
    console = Console()
    if not console.is_terminal:
        plain = Console(width=UNBROKEN, color_system=None)
        return _drawn(sheet, list(sheet.columns), (), plain)
    shown = list(sheet.columns)
    while len(shown) > sheet.keys and _least_width(sheet, shown) > console.width:
        shown.pop()
    rest = [sheet.columns[field].replace("\n", " ") for field in list(sheet.columns)[len(shown) :]]
    left_out = (
        f"Left out at {console.width} columns: {', '.join(rest)}. "
        "A wider terminal, --json, --csv or -o FILE shows all."
    )
    # Keys that do not fit run over the edge: broken by the terminal, but whole.
    console.width = max(console.width, _least_width(sheet, shown))
    return _drawn(sheet, shown, (left_out,) if rest else (), console)


def facts_sheet(title: str, facts: Row) -> Sheet:
    """Return a table of names and values."""
    rows = [{"what": name.replace("_", " "), "value": value} for name, value in facts.items()]
    return Sheet(title, rows, {"what": "what", "value": "value"}, keys=2, header=False)


def write(path: Path, content: bytes) -> None:
    """Write `content` to `path`, atomically."""
    from kvsim.traces.trace import write_atomically

    write_atomically(path, lambda file: file.write(content))


def _drawn(sheet: Sheet, fields: Sequence[str], more: Sequence[str], console: Console) -> str:
    table = Table(show_header=sheet.header)
    for field in fields:
        table.add_column(
            sheet.columns[field],
            justify="left" if sheet.is_text(field) else "right",
            no_wrap=field not in sheet.wrapping,
            min_width=sheet.least_width(field),
        )
    # As Text, since a name may hold what rich takes for markup.
    for row in zip(*(sheet.cells(field) for field in fields), strict=True):
        table.add_row(*map(Text, row))
    with console.capture() as capture:
        console.print(Text(sheet.title, style="italic"), table)
        console.print(*(Text(line) for line in (*sheet.remarks, *more)), sep="\n", end="")
    return "".join(f"{line.rstrip()}\n" for line in capture.get().splitlines())


def _least_width(sheet: Sheet, fields: Sequence[str]) -> int:
    return 1 + sum(sheet.least_width(field) + BORDER for field in fields)


def _escaped(row: Sequence[str]) -> list[str]:
    return [cell.replace("|", "\\|") for cell in row]


def _rows(data: Data) -> Sequence[Row]:
    return [data] if isinstance(data, Mapping) else data


def _joined(value: Any) -> Any:
    return ", ".join(value) if isinstance(value, list) else value


def _dump(row: Row) -> str:
    # Numbers of numpy have .item(); NaN is no JSON, and no result of ours is NaN.
    return json.dumps(row, allow_nan=False, default=lambda value: value.item())


def _shown(field: str, value: Any) -> str:
    if value is None:
        return "no data" if field.endswith("ratio") else "–"
    if isinstance(value, str | list):
        return str(_joined(value))
    return f"{value:.2%}" if field.endswith("ratio") else f"{value:,}"
