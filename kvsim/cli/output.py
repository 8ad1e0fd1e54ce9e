"""Where results, notes and errors of the commands go, and in which form."""

import os
import sys
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from kvsim.report import terminal
from kvsim.report.terminal import Data, Row, Sheet

if TYPE_CHECKING:
    from kvsim.traces.trace import Trace

BROKEN_PIPE = 141
FILE_FORMS: dict[str, Callable[[Data, Sheet], bytes]] = {
    ".csv": lambda data, _: terminal.as_csv(data).encode(),
    ".json": lambda data, _: terminal.as_json(data).encode(),
    ".parquet": lambda data, _: terminal.as_parquet(data),
    ".md": lambda _, sheet: terminal.as_markdown(sheet).encode(),
}
PLOT_FORMS = (".png", ".svg")

Write = Callable[[Data, Sheet], None]


def writer(as_json: bool, as_csv: bool, output: Path | None) -> Write:
    """Return a function of (data, sheet) that writes the form asked for to where it should go.

    What cannot be written is refused here, before any work.
    """
    if as_json and as_csv:
        raise usage_error("--json and --csv exclude each other")
    if output is not None:
        if as_json or as_csv:
            chosen = "--json" if as_json else "--csv"
            raise usage_error(f"{chosen} and -o exclude each other: the suffix of {output} decides")
        _require_form(output, tuple(FILE_FORMS))
        if output.suffix == ".parquet":
            _require_package(output, "pyarrow", "parquet")

    def write(data: Data, sheet: Sheet) -> None:
        if output is not None:
            terminal.write(output, FILE_FORMS[output.suffix](data, sheet))
        elif as_json:
            show(terminal.as_json(data))
        elif as_csv:
            show(terminal.as_csv(data))
        else:
            show(terminal.as_text(sheet))

    return write


def plotter(plot: Path | None) -> Callable[[str, Sequence[Row]], None]:
    """Return a function of (title, rows with policy, capacity, hit_ratio) that draws them."""
    if plot is not None:
        _require_form(plot, PLOT_FORMS)
        _require_package(plot, "matplotlib", "plot")

    def draw(title: str, rows: Sequence[Row]) -> None:
        if plot is None:
            return
        import matplotlib
        import pandas as pd

        from kvsim.report import figures
        from kvsim.traces.trace import TraceError, write_atomically

        points = [row for row in rows if row["hit_ratio"] is not None and row["capacity"] > 0]
        if not points:
            raise TraceError(f"{plot}: nothing to draw: no capacity above 0 has a hit ratio")
        matplotlib.use("agg")
        figures.use_style()
        [panel] = figures.hit_ratio_by_capacity(pd.DataFrame(points).assign(trace=title))
        form = plot.suffix.removeprefix(".")
        write_atomically(plot, lambda file: panel.savefig(file, format=form))

    return draw


def show(text: str) -> None:
    """Print a result; end quietly if its reader has gone away."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        # The interpreter flushes once more at exit, which must not fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(BROKEN_PIPE) from None


def say(line: str) -> None:
    """Print a line to standard error."""
    sys.stderr.write(f"{line}\n")  # in one go, as threads say things too


def say_notes(trace: "Trace") -> None:
    """Print what its readers noticed about a trace."""
    for note in trace.notes:
        say(f"note: {note}")


def usage_error(message: str) -> typer.TyperException:
    """Return the error of a command line that makes no sense."""
    return typer.TyperException(message)


def _require_form(path: Path, forms: Sequence[str]) -> None:
    if path.suffix not in forms:
        raise usage_error(f"{path}: the suffix says the form; it may be {', '.join(forms)}")
    if path.is_dir():
        raise usage_error(f"{path}: is a folder")


def _require_package(path: Path, package: str, extra: str) -> None:
    if find_spec(package) is None:
        raise usage_error(f"{path}: needs {package}; install it with: pip install 'kvsim[{extra}]'")
