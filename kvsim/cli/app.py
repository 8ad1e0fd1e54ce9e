"""The program: its commands, its exit codes, its errors of one line."""

import os
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from kvsim import __version__
from kvsim.cli import explore, models, runs, traces
from kvsim.cli.output import show
from kvsim.cli.runs import INTERRUPTED

USAGE = 2

app = typer.Typer(
    name="kvsim",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _say_version(asked: bool) -> None:
    if asked:
        show(f"kvsim {__version__}\n")
        raise typer.Exit


@app.callback()
def kvsim(
    version: Annotated[
        bool,
        typer.Option(
            "--version", metavar="", callback=_say_version, is_eager=True, help="Say which this is."
        ),
    ] = False,
) -> None:
    """Exact simulation of KV prefix caches on real request traces."""


for command in (
    traces.info,
    runs.simulate,
    runs.curve,
    traces.convert,
    explore.explore,
    runs.policies,
    models.models,
    traces.fetch,
):
    app.command()(command)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return its exit code.

    Bad input ends with one line on standard error and code 2, an interrupt with 130, a reader
    that went away (``| head``) with 141; anything else is a bug and shows its traceback.
    """
    code = _run(arguments)
    if code == INTERRUPTED and arguments is None:
        os._exit(code)  # threads that still work would hold a regular exit
    return code


def _run(arguments: Sequence[str] | None) -> int:
    try:
        code = app(arguments, prog_name="kvsim", standalone_mode=False)
    except typer.TyperException as error:
        return _complain(error)
    except (typer.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        return _fail(f"{where}{error.strerror or error}")
    except ValueError as error:
        from kvsim.traces.trace import TraceError

        if not isinstance(error, TraceError):
            raise
        return _fail(str(error))
    return code if isinstance(code, int) else 0


def _complain(error: typer.TyperException) -> int:
    message = error.format_message()
    if not message:  # no arguments at all: the help was shown instead
        return USAGE
    context = getattr(error, "ctx", None)
    hint = f"; see '{context.command_path} --help'" if context else ""
    return _fail(f"{message.rstrip('.')}{hint}")


def _fail(message: str) -> int:
    print(f"error: {' '.join(message.split())}", file=sys.stderr)
    return USAGE
