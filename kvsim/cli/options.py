"""The options that commands share, in panels, and what their help says."""

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from kvsim.cli import complete

TRACE = "Trace"
CACHE = "Cache"
ARRIVALS = "Arrivals"
OUTPUT = "Output"

DEFAULT_WINDOW = "8h"  # of kvsim.traces.arrivals, whose import would cost --help half a second


def flag(name: str, panel: str, help: str) -> Any:
    """Return an option that is there or not."""
    return typer.Option(name, metavar="", rich_help_panel=panel, help=help)


TraceArgument = Annotated[
    str,
    typer.Argument(
        metavar="TRACE",
        autocompletion=complete.traces,
        help="A known trace (sample, conversation, weka; all: 'kvsim fetch --list'), a file or "
        "folder, or - for standard input.",
    ),
]
Format = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        rich_help_panel=TRACE,
        help="mooncake, weka, bailian or kvsim; told from the content unless given.",
    ),
]
Rows = Annotated[
    Literal["cumulative", "incremental"] | None,
    typer.Option(
        metavar="KIND",
        rich_help_panel=TRACE,
        help="cumulative or incremental: a session's row lists its whole prompt, or what is new "
        "in it.",
    ),
]
Nested = Annotated[
    Literal["relative", "absolute"] | None,
    typer.Option(
        metavar="CLOCK",
        rich_help_panel=TRACE,
        help="relative or absolute: the times of nested sub-agents; told from them unless given.",
    ),
]
BlockSize = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="TOKENS",
        rich_help_panel=TRACE,
        help="Tokens a block, where the format does not say.",
    ),
]
TimeUnit = Annotated[
    Literal["s", "ms", "us", "ns"] | None,
    typer.Option(
        metavar="UNIT",
        rich_help_panel=TRACE,
        help="s, ms, us or ns: the unit of timestamps; told from format and values unless given.",
    ),
]
PartialBlocks = Annotated[
    Literal["continue", "error"] | None,
    typer.Option(
        metavar="HOW",
        rich_help_panel=TRACE,
        help="A partial last block met again with other tokens: continue (another block) or error; "
        "continue unless given.",
    ),
]
KeepRepeats = Annotated[
    bool, flag("--keep-repeats", TRACE, "Keep sessions that repeat another but for the id.")
]
Window = Annotated[
    str | None,
    typer.Option(
        metavar="TIME",
        rich_help_panel=ARRIVALS,
        help="Sessions without recorded starts begin uniformly in this time; 0: all at once. "
        f"{DEFAULT_WINDOW} unless given.",
    ),
]
Sessions = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="COUNT",
        rich_help_panel=ARRIVALS,
        help="Keep so many sessions, drawn by the seed.",
    ),
]
Seed = Annotated[
    int,
    typer.Option(
        min=0,
        metavar="NUMBER",
        rich_help_panel=ARRIVALS,
        help="Of session starts, samples, random policies.",
    ),
]
CAPACITY = typer.Option(
    "--capacity",
    metavar="LIST",
    rich_help_panel=CACHE,
    help="Blocks (10k, 1.5M), a share of the distinct blocks (10%), inf, or memory (512MiB).",
)
BytesPerToken = Annotated[
    float | None,
    typer.Option(
        metavar="BYTES",
        rich_help_panel=CACHE,
        help="KV bytes of a token, for capacities given as memory.",
    ),
]
MeasureFrom = Annotated[
    str,
    typer.Option(
        metavar="START",
        rich_help_panel=CACHE,
        help="Count hits only from there on: a share of the requests (50%), a time (2h), or a "
        "request number; all unless given.",
        show_default=False,
    ),
]
Ttl = Annotated[
    str | None,
    typer.Option(
        metavar="TIME",
        rich_help_panel=CACHE,
        help="Blocks untouched for longer expire: 300, 5m.",
    ),
]
Policies = Annotated[
    list[str] | None,
    typer.Option(
        "--policy",
        metavar="LIST",
        rich_help_panel=CACHE,
        autocompletion=complete.policies,
        help="Names of 'kvsim policies', all, or .py files that define POLICY; lru unless given.",
    ),
]
Eviction = Annotated[
    Literal["leaf", "flat"],
    typer.Option(
        metavar="WHICH",
        rich_help_panel=CACHE,
        help="leaf or flat: evict leaves only, or any block.",
    ),
]
NoPin = Annotated[bool, flag("--no-pin", CACHE, "Let a request evict blocks of its own chain.")]
TouchOrder = Annotated[
    Literal["deepest-oldest", "root-oldest"],
    typer.Option(
        metavar="ORDER",
        rich_help_panel=CACHE,
        help="deepest-oldest or root-oldest: which end of a chain counts as used longer ago.",
    ),
]
Hits = Annotated[
    Literal["prefix", "set"],
    typer.Option(
        metavar="WHICH",
        rich_help_panel=CACHE,
        help="prefix or set: count the resident prefix, or resident blocks one by one.",
    ),
]
HitCap = Annotated[
    Literal["engine"] | None,
    typer.Option(
        metavar="WHOSE",
        rich_help_panel=CACHE,
        help="engine: count at most input - 1 tokens, in whole blocks, as engines do.",
    ),
]
AsJson = Annotated[bool, flag("--json", OUTPUT, "Print JSON.")]
AsCsv = Annotated[bool, flag("--csv", OUTPUT, "Print CSV.")]
Output = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        metavar="FILE",
        rich_help_panel=OUTPUT,
        help="Write to this file instead, in the form of its suffix: .csv, .json, .parquet or .md.",
    ),
]
Plot = Annotated[
    Path | None,
    typer.Option(
        "--plot",
        metavar="FILE",
        rich_help_panel=OUTPUT,
        help="Also draw hit ratio over capacity, a line a policy: .png or .svg.",
    ),
]
