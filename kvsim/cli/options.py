"""The options that commands share, and what their help says."""

from pathlib import Path
from typing import Annotated, Literal

import typer

DEFAULT_WINDOW = "8h"  # of kvsim.traces.arrivals, whose import would cost --help half a second

TraceArgument = Annotated[
    str,
    typer.Argument(
        metavar="TRACE",
        help="A known trace (sample, conversation, weka; all: kvsim fetch --list) or a path.",
    ),
]
Format = Annotated[
    str | None, typer.Option(help="mooncake or weka; told from the content unless given.")
]
Rows = Annotated[
    Literal["cumulative", "incremental"] | None,
    typer.Option(help="What a session's row lists: its whole prompt, or what is new in it."),
]
Nested = Annotated[
    Literal["relative", "absolute"] | None,
    typer.Option(help="Clock of nested sub-agents; told from the times unless given."),
]
BlockSize = Annotated[
    int | None, typer.Option(min=1, help="Tokens a block, where the format does not say.")
]
KeepRepeats = Annotated[
    bool, typer.Option("--keep-repeats", help="Keep sessions that repeat another but for the id.")
]
Window = Annotated[
    str | None,
    typer.Option(
        metavar="TIME",
        help="Session traces: sessions start uniformly in this time; 0: all at once.",
        show_default=DEFAULT_WINDOW,
    ),
]
Sessions = Annotated[
    int | None, typer.Option(min=1, help="Session traces: keep so many, drawn by the seed.")
]
Seed = Annotated[int, typer.Option(min=0, help="Of session starts, samples, random policies.")]
CAPACITY = typer.Option(
    "--capacity",
    metavar="LIST",
    help="Blocks (10k, 1.5M), a share of the distinct blocks (10%), inf, or memory (512MiB).",
)
BytesPerToken = Annotated[
    float | None, typer.Option(help="KV bytes of a token, for capacities given as memory.")
]
Ttl = Annotated[
    str | None, typer.Option(metavar="TIME", help="Blocks untouched for longer expire: 300, 5m.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
AsCsv = Annotated[bool, typer.Option("--csv", help="Print CSV.")]
Output = Annotated[Path | None, typer.Option("--output", "-o", help="Write to this file instead.")]
