"""Commands on traces: what is in one, saving one, fetching the published ones."""

from pathlib import Path
from typing import Annotated

import typer

from kvsim.cli import complete
from kvsim.cli.inputs import open_trace
from kvsim.cli.options import (
    AsCsv,
    AsJson,
    BlockSize,
    Format,
    KeepRepeats,
    Nested,
    Output,
    PartialBlocks,
    Rows,
    TimeUnit,
    TraceArgument,
    flag,
)
from kvsim.cli.output import say, say_notes, usage_error, writer
from kvsim.report import terminal
from kvsim.report.terminal import Meter, Sheet

FETCHING = "Fetching"
TRACE_COLUMNS = {
    "name": "name",
    "set": "set",
    "here": "here",
    "licence": "licence",
    "source": "published at",
}


def info(
    trace: TraceArgument,
    format: Format = None,
    rows: Rows = None,
    nested: Nested = None,
    block_size: BlockSize = None,
    time_unit: TimeUnit = None,
    partial_blocks: PartialBlocks = None,
    keep_repeats: KeepRepeats = False,
    as_json: AsJson = False,
    as_csv: AsCsv = False,
    output: Output = None,
) -> None:
    """Say what is in a trace, and what an infinite cache would hit."""
    write = writer(as_json, as_csv, output)
    with Meter() as meter:
        loaded = open_trace(
            meter,
            trace,
            format=format,
            rows=rows,
            nested=nested,
            block_size=block_size,
            time_unit=time_unit,
            partial_blocks=partial_blocks,
            keep_repeats=keep_repeats,
        )
    facts = loaded.info()
    say_notes(loaded)
    write(facts, terminal.facts_sheet(loaded.name, facts))


def convert(
    trace: TraceArgument,
    out: Annotated[Path, typer.Argument(metavar="OUT.npz", help="File to write.")],
    format: Format = None,
    rows: Rows = None,
    nested: Nested = None,
    block_size: BlockSize = None,
    time_unit: TimeUnit = None,
    partial_blocks: PartialBlocks = None,
    keep_repeats: KeepRepeats = False,
) -> None:
    """Save a trace in the one-file form that opens in milliseconds."""
    if out.suffix != ".npz":
        raise usage_error(f"{out}: a saved trace ends in .npz")
    with Meter() as meter:
        loaded = open_trace(
            meter,
            trace,
            format=format,
            rows=rows,
            nested=nested,
            block_size=block_size,
            time_unit=time_unit,
            partial_blocks=partial_blocks,
            keep_repeats=keep_repeats,
        )
    loaded.save(out)
    say_notes(loaded)


def fetch(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME",
            autocompletion=complete.published,
            help="Traces or sets (mooncake, weka, agentx).",
        ),
    ] = None,
    mirror: Annotated[
        Path | None,
        typer.Option(
            "--from",
            metavar="FOLDER",
            rich_help_panel=FETCHING,
            help="Copy from this folder instead of downloading.",
        ),
    ] = None,
    to: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            rich_help_panel=FETCHING,
            help="Target; unless given raw/ in the data folder, where names are looked up.",
        ),
    ] = None,
    listing: Annotated[
        bool, flag("--list", FETCHING, "Fetch nothing: list the known traces and which are here.")
    ] = False,
    as_json: AsJson = False,
    as_csv: AsCsv = False,
    output: Output = None,
) -> None:
    """Bring published traces into the data folder, verified, and convert them once.

    Without names: every trace of the study. An interrupted download goes on where it stopped.
    """
    if listing:
        write = writer(as_json, as_csv, output)
        title, known = _known_traces()
        write(known, Sheet(title, known, TRACE_COLUMNS, keys=1))
        return
    if as_json or as_csv or output:
        raise usage_error("--json, --csv and -o go with --list: a fetch has no table")
    from kvsim.traces import opening
    from kvsim.traces.fetch import fetch as bring

    with Meter() as meter:
        had = bring(names or (), mirror=mirror, raw=to, progress=meter, say=say)
        if to is None:
            for name in had:
                opening.open_trace(name, window=None, progress=meter.task(f"converting {name}"))


def _known_traces() -> tuple[str, list[dict[str, str]]]:
    """Return the title and the rows of the list of known traces."""
    from kvsim.traces.fetch import present
    from kvsim.traces.registry import raw_folder, registry

    raw = raw_folder()
    rows = [
        {
            "name": entry.name,
            "set": entry.set,
            "here": "yes" if present(entry, raw) else "no",
            "licence": entry.licence,
            "source": entry.source,
        }
        for entry in registry().values()
    ]
    return f"Known traces, besides sample ({raw})", rows
