"""What the commands show: tables, JSON, CSV, and progress on longer work."""

import csv
import io
import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

WIDTH_OFF_TERMINAL = 160
PATIENCE = 1.0

Row = Mapping[str, Any]


class Meter:
    """A progress bar on standard error, once work has taken a second, on a terminal only.

    Used as a context manager; calls say how far the work is.
    """

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True)
        self._started = time.monotonic()
        self._bar: Progress | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar:
            self._bar.stop()

    def __call__(self, what: str, done: int, total: int) -> None:
        """Show that `done` of `total` units of `what` are done."""
        if not self._console.is_terminal:
            return
        if self._bar is None:
            if time.monotonic() - self._started < PATIENCE:
                return
            self._bar = Progress(console=self._console, transient=True)
            self._bar.start()
        for task in self._bar.tasks:
            if task.description == what:
                self._bar.update(task.id, completed=done, total=total or None)
                return
        self._bar.add_task(what, completed=done, total=total or None)

    def task(self, what: str) -> Callable[[int, int], None]:
        """Return a callback of (done, total) for one kind of work."""
        return lambda done, total: self(what, done, total)


def as_json(data: Row | Sequence[Row]) -> str:
    """Return `data` as JSON, a row a line."""
    if isinstance(data, Mapping):
        return _dump(data) + "\n"
    return "[" + ",".join(f"\n {_dump(row)}" for row in data) + "\n]\n"


def as_csv(data: Row | Sequence[Row]) -> str:
    """Return `data` as CSV with a header; missing values are empty."""
    rows = [data] if isinstance(data, Mapping) else data
    text = io.StringIO()
    writer = csv.DictWriter(text, rows[0] if rows else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def as_text(table: Table, *, to_file: bool = False) -> str:
    """Return a table as it looks on the terminal.

    A file, or standard output that is no terminal, gets plain lines wide
    enough for every column.
    """
    console = Console()
    if to_file or not console.is_terminal:
        console = Console(width=WIDTH_OFF_TERMINAL, color_system=None)
    with console.capture() as capture:
        console.print(table)
    return "".join(f"{line.rstrip()}\n" for line in capture.get().splitlines())


def table_of(
    title: str, rows: Iterable[Row], columns: Mapping[str, str], caption: str | None = None
) -> Table:
    """Return a table with the given columns (field to heading) of `rows`."""
    rows = list(rows)
    table = Table(title=title, title_justify="left", caption=caption, caption_justify="left")
    for field, heading in columns.items():
        text = all(isinstance(row[field], str) for row in rows)
        table.add_column(heading, justify="left" if text else "right", no_wrap=not text)
    for row in rows:
        table.add_row(*(_shown(field, row[field]) for field in columns))
    return table


def facts_table(title: str, facts: Row) -> Table:
    """Return a table of names and values."""
    rows = [{"what": name.replace("_", " "), "value": value} for name, value in facts.items()]
    table = table_of(title, rows, {"what": "", "value": ""})
    table.show_header = False
    return table


def write_text(path: Path, text: str) -> None:
    """Write `text` to `path`, atomically."""
    from kvsim.traces.trace import write_atomically

    write_atomically(path, lambda file: file.write(text.encode()))


def _dump(row: Row) -> str:
    # Numbers of numpy have .item(); NaN is no JSON, and no result of ours is NaN.
    return json.dumps(row, allow_nan=False, default=lambda value: value.item())


def _shown(field: str, value: Any) -> str:
    if value is None:
        return "no data" if field.endswith("ratio") else "–"
    if isinstance(value, str):
        return value
    return f"{value:.2%}" if field.endswith("ratio") else f"{value:,}"
