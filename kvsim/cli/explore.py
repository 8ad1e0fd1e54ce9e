"""The command that makes a page to play with from a trace."""

import shlex
from pathlib import Path
from typing import Annotated

import typer

from kvsim.cli import complete
from kvsim.cli.inputs import items, open_trace
from kvsim.cli.options import (
    CACHE,
    DEFAULT_WINDOW,
    OUTPUT,
    BlockSize,
    Format,
    KeepRepeats,
    Nested,
    PartialBlocks,
    Rows,
    Seed,
    TimeUnit,
    TraceArgument,
    Window,
)
from kvsim.cli.output import say, say_notes
from kvsim.report.terminal import Meter

Page = Annotated[
    Path,
    typer.Option("--output", "-o", metavar="FILE", rich_help_panel=OUTPUT, help="Page to write."),
]
Chosen = Annotated[
    list[str] | None,
    typer.Option(
        "--policy",
        metavar="LIST",
        rich_help_panel=CACHE,
        autocompletion=complete.policies,
        help="Names of 'kvsim policies', beside lru and opt; a handful unless given.",
    ),
]


def explore(
    trace: TraceArgument,
    output: Page,
    policy: Chosen = None,
    window: Window = None,
    seed: Seed = 0,
    format: Format = None,
    rows: Rows = None,
    nested: Nested = None,
    block_size: BlockSize = None,
    time_unit: TimeUnit = None,
    partial_blocks: PartialBlocks = None,
    keep_repeats: KeepRepeats = False,
) -> None:
    """Write a page to play with: hits at 24 capacities, by policy and by TTL, and what binds.

    One HTML file that asks for no other.
    """
    from kvsim.cache.policies import get
    from kvsim.experiments import explore as exploring
    from kvsim.report import explorer
    from kvsim.traces.trace import SESSION, TraceError, write_atomically

    names = items("--policy", policy) if policy else list(exploring.POLICIES)
    names = [name for name in dict.fromkeys(names) if name not in ("lru", "opt", "infinite")]
    for name in names:
        if get(name).name != name:
            raise TraceError(f"--policy {name}: a page takes names of 'kvsim policies' only")
    options = {
        "format": format,
        "rows": rows,
        "nested": nested,
        "block_size": block_size,
        "time_unit": time_unit,
        "partial_blocks": partial_blocks,
        "keep_repeats": keep_repeats,
    }
    with Meter() as meter:
        loaded = open_trace(meter, trace, **options)
        if window is not None and loaded.clock != SESSION:
            raise TraceError(f"{trace}: its arrivals are recorded, so --window does not apply")
        tables = exploring.measured(
            loaded,
            _as_written(trace, options),
            names,
            window or DEFAULT_WINDOW,
            (seed,),
            meter.task("policies and capacities"),
        )
    say_notes(loaded)
    title = f"What would your cache hit? {loaded.name}"
    page = explorer.page(explorer.data(tables), title).encode()
    write_atomically(output, lambda file: file.write(page))
    say(f"{output}: open it in a browser")


def _as_written(trace: str, options: dict[str, str | int | bool | None]) -> str:
    """Return the trace and its options as words of a command."""
    words = [trace]
    for name, value in options.items():
        if value is True:
            words.append(f"--{name.replace('_', '-')}")
        elif value:
            words += [f"--{name.replace('_', '-')}", str(value)]
    return shlex.join(words)
