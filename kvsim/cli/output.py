"""Where results, notes and errors of the commands go."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.table import Table

from kvsim.report import terminal

if TYPE_CHECKING:
    from kvsim.traces.trace import Trace

BROKEN_PIPE = 141


def writer(
    as_json: bool, as_csv: bool, output: Path | None
) -> Callable[[Any, Callable[[], Table]], None]:
    """Return a function of (rows, table) that writes the form asked for to where it should go."""
    if as_json and as_csv:
        raise usage_error("--json and --csv exclude each other")

    def write(rows: Any, table: Callable[[], Table]) -> None:
        if as_json:
            text = terminal.as_json(rows)
        elif as_csv:
            text = terminal.as_csv(rows)
        else:
            text = terminal.as_text(table(), to_file=output is not None)
        if output:
            terminal.write_text(output, text)
        else:
            show(text)

    return write


def say(line: str) -> None:
    """Print a line to standard error."""
    print(line, file=sys.stderr)


def say_notes(trace: "Trace") -> None:
    """Print what its readers noticed about a trace."""
    for note in trace.notes:
        say(f"note: {note}")


def usage_error(message: str) -> typer.TyperException:
    """Return the error of a command line that makes no sense."""
    return typer.TyperException(message)


def show(text: str) -> None:
    """Print a result; end quietly if its reader has gone away."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        # The interpreter flushes once more at exit, which must not fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(BROKEN_PIPE) from None
