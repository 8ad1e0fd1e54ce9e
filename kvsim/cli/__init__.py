"""The command line: a trace and options in; a table, JSON or CSV out."""

# Modules that compile take most of a second to load, which `kvsim --help` or a misspelt
# option should not cost: the commands import them.

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.table import Table

from kvsim.report import terminal
from kvsim.report.terminal import Meter

if TYPE_CHECKING:
    from kvsim.cache.policy import Policy
    from kvsim.traces.trace import Trace

DEFAULT_WINDOW = "8h"  # of kvsim.traces.arrivals, whose import would cost --help half a second
CURVE_POINTS = 64
USAGE = 2
INTERRUPTED = 130
BROKEN_PIPE = 141

RUN_FIELDS = (
    "policy",
    "capacity",
    "requests",
    "blocks",
    "hit_blocks",
    "hit_ratio",
    "tokens",
    "hit_tokens",
    "compulsory_blocks",
    "recompute_blocks",
    "capped_blocks",
    "inserted_blocks",
    "evicted_blocks",
    "expired_blocks",
)
RUN_COLUMNS = {
    "policy": "policy",
    "capacity": "capacity\n(blocks)",
    "hit_ratio": "hit ratio\n(blocks)",
    "hit_blocks": "hit\nblocks",
    "hit_tokens": "hit\ntokens",
    "compulsory_blocks": "compulsory\nblocks",
    "recompute_blocks": "recompute\nblocks",
    "evicted_blocks": "evicted\nblocks",
    "expired_blocks": "expired\nblocks",
}
CURVE_COLUMNS = {
    "capacity": "capacity (blocks)",
    "hit_ratio": "hit ratio (blocks)",
    "hit_blocks": "hit blocks",
}
POLICY_COLUMNS = {"name": "policy", "needs": "needs", "source": "source"}
TRACE_COLUMNS = {
    "name": "name",
    "set": "set",
    "here": "here",
    "licence": "licence",
    "source": "published at",
}
BOUNDS_LISTED = (
    {"name": "opt", "source": "bound: Belady 1966, with bypass", "needs": ["future"]},
    {"name": "infinite", "source": "bound: nothing is ever evicted", "needs": []},
)
OPT_CAPTION = "opt bounds hit blocks before the hit cap; it bounds neither tokens nor capped hits."

app = typer.Typer(
    name="kvsim",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

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


@app.callback()
def kvsim() -> None:
    """Exact simulation of KV prefix caches on real request traces."""


@app.command()
def info(
    trace: TraceArgument,
    format: Format = None,
    rows: Rows = None,
    nested: Nested = None,
    block_size: BlockSize = None,
    keep_repeats: KeepRepeats = False,
    as_json: AsJson = False,
    as_csv: AsCsv = False,
    output: Output = None,
) -> None:
    """Say what is in a trace, and what an infinite cache would hit."""
    write = _writer(as_json, as_csv, output)

    with Meter() as meter:
        loaded = _open(meter, trace, format, rows, nested, block_size, keep_repeats)
    facts = loaded.info()
    _say_notes(loaded)
    write(facts, lambda: terminal.facts_table(loaded.name, facts))


@app.command()
def simulate(
    trace: TraceArgument,
    capacity: Annotated[list[str], CAPACITY],
    policy: Annotated[
        list[str] | None,
        typer.Option(
            metavar="LIST",
            help="Names of 'kvsim policies', all, or .py files that define POLICY.",
            show_default="lru",
        ),
    ] = None,
    ttl: Ttl = None,
    eviction: Annotated[
        Literal["leaf", "flat"], typer.Option(help="Evict leaves only, or any block.")
    ] = "leaf",
    no_pin: Annotated[
        bool, typer.Option("--no-pin", help="Let a request evict blocks of its own chain.")
    ] = False,
    touch_order: Annotated[
        Literal["deepest-oldest", "root-oldest"],
        typer.Option(help="Which end of a chain counts as used longer ago."),
    ] = "deepest-oldest",
    hits: Annotated[
        Literal["prefix", "set"],
        typer.Option(help="Count the resident prefix, or resident blocks one by one."),
    ] = "prefix",
    hit_cap: Annotated[
        Literal["engine"] | None,
        typer.Option(help="Count at most input - 1 tokens, in whole blocks, as engines do."),
    ] = None,
    window: Window = None,
    sessions: Sessions = None,
    seed: Seed = 0,
    bytes_per_token: BytesPerToken = None,
    format: Format = None,
    rows: Rows = None,
    nested: Nested = None,
    block_size: BlockSize = None,
    keep_repeats: KeepRepeats = False,
    as_json: AsJson = False,
    as_csv: AsCsv = False,
    output: Output = None,
) -> None:
    """Replay a trace: one row for each policy and capacity, policy by policy.

    Lists are comma-separated: --policy lru,belady,opt --capacity 10k,30k,50k
    """
    write = _writer(as_json, as_csv, output)
    from kvsim.cache import capacity as capacities
    from kvsim.cache.engine import Switches
    from kvsim.cache.sweep import simulate as run
    from kvsim.traces.durations import parse_duration

    lifetime = None if ttl is None else parse_duration(ttl)
    policies = _policies(_items("--policy", policy or ["lru"]))
    sizes = _items("--capacity", capacity)
    switches = Switches(eviction, not no_pin, touch_order, hits, hit_cap)
    table = []
    with Meter() as meter:
        loaded = _open(meter, trace, format, rows, nested, block_size, keep_repeats)
        loaded = _arrange(loaded, window, sessions, seed)
        blocks = [capacities.parse(size, loaded, bytes_per_token) for size in sizes]
        cells = [(chosen, size) for chosen in policies for size in blocks]
        for done, (chosen, size) in enumerate(cells):
            meter("simulating", done, len(cells))
            result = run(loaded, chosen, size, ttl=lifetime, switches=switches, seed=seed)
            summary = result.row()
            table.append({field: summary[field] for field in RUN_FIELDS})
    _say_notes(loaded)
    write(table, lambda: _runs_table(loaded.name, table, lifetime))


@app.command()
def curve(
    trace: TraceArgument,
    capacity: Annotated[list[str] | None, CAPACITY] = None,
    every: Annotated[
        bool, typer.Option("--all", help="Every capacity at which the hits rise.")
    ] = False,
    ttl: Ttl = None,
    window: Window = None,
    sessions: Sessions = None,
    seed: Seed = 0,
    bytes_per_token: BytesPerToken = None,
    format: Format = None,
    rows: Rows = None,
    nested: Nested = None,
    block_size: BlockSize = None,
    keep_repeats: KeepRepeats = False,
    as_json: AsJson = False,
    as_csv: AsCsv = False,
    output: Output = None,
) -> None:
    """Give LRU's exact hits at many capacities, from one pass.

    Without --capacity or --all: 64 log-spaced capacities, and the first that reaches the hits
    of an infinite cache.
    """
    write = _writer(as_json, as_csv, output)
    if every and capacity:
        raise _usage("--all and --capacity exclude each other")
    from kvsim.cache import capacity as capacities
    from kvsim.cache.curves import lru_curve
    from kvsim.traces.durations import parse_duration

    lifetime = None if ttl is None else parse_duration(ttl)
    with Meter() as meter:
        loaded = _open(meter, trace, format, rows, nested, block_size, keep_repeats)
        loaded = _arrange(loaded, window, sessions, seed)
        sizes = [
            capacities.parse(size, loaded, bytes_per_token)
            for size in (_items("--capacity", capacity) if capacity else [])
        ]
        hits = lru_curve(loaded, lifetime)
    if every:
        sizes = [0, *(index + 1 for index in (hits[1:] > hits[:-1]).nonzero()[0].tolist())]
    elif not capacity:
        enough = int(hits.searchsorted(hits[-1]))
        spaced = capacities.log_spaced(1, loaded.distinct_blocks, CURVE_POINTS)
        sizes = sorted({*spaced, enough})
    table = [_point(size, int(hits[min(size, len(hits) - 1)]), loaded.blocks) for size in sizes]
    _say_notes(loaded)
    title = f"{loaded.name}, {'LRU' if lifetime is None else _label('lru', lifetime)}"
    write(table, lambda: terminal.table_of(title, table, CURVE_COLUMNS))


@app.command()
def convert(
    trace: TraceArgument,
    out: Annotated[Path, typer.Argument(metavar="OUT.npz", help="File to write.")],
    format: Format = None,
    rows: Rows = None,
    nested: Nested = None,
    block_size: BlockSize = None,
    keep_repeats: KeepRepeats = False,
) -> None:
    """Save a trace in the one-file form that opens in milliseconds."""
    if out.suffix != ".npz":
        raise _usage(f"{out}: a saved trace ends in .npz")
    with Meter() as meter:
        loaded = _open(meter, trace, format, rows, nested, block_size, keep_repeats)
    loaded.save(out)
    _say_notes(loaded)


@app.command()
def policies(as_json: AsJson = False, as_csv: AsCsv = False, output: Output = None) -> None:
    """List the eviction policies."""
    write = _writer(as_json, as_csv, output)
    from kvsim.cache.policies import POLICIES

    catalogue: list[dict[str, Any]] = [
        {"name": name, "source": policy.source, "needs": list(policy.needs)}
        for name, policy in POLICIES.items()
    ]
    catalogue += BOUNDS_LISTED
    shown = [row | {"needs": ", ".join(row["needs"])} for row in catalogue]
    if as_csv:
        catalogue = shown
    write(catalogue, lambda: terminal.table_of("Policies", shown, POLICY_COLUMNS))


@app.command()
def fetch(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME]...", help="Traces or sets (mooncake, weka, agentx)."),
    ] = None,
    mirror: Annotated[
        Path | None, typer.Option("--from", help="Copy from this folder instead of downloading.")
    ] = None,
    to: Annotated[Path | None, typer.Option(help="Target folder.", show_default="data/raw")] = None,
    listing: Annotated[bool, typer.Option("--list", help="List the known traces.")] = False,
) -> None:
    """Bring published traces into data/raw, verified, and convert them once.

    Without names: every trace of the study. An interrupted download goes on where it stopped.
    """
    from kvsim.traces import opening
    from kvsim.traces.fetch import fetch as bring

    if listing:
        _print(terminal.as_text(_traces_table()))
        return
    with Meter() as meter:
        had = bring(names or (), mirror=mirror, raw=to, progress=meter, say=_say)
        if to is None:
            for name in had:
                opening.open_trace(name, window=None, progress=meter.task(f"converting {name}"))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return its exit code.

    Bad input ends with one line on standard error and code 2, an interrupt with 130, a reader
    that went away (``| head``) with 141; anything else is a bug and shows its traceback.
    """
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


def _open(meter: Meter, name: str, *options: Any) -> "Trace":
    from kvsim.traces.opening import open_trace

    names = ("format", "rows", "nested", "block_size", "keep_repeats")
    given = dict(zip(names, options, strict=True))
    return open_trace(name, window=None, progress=meter.task(f"reading {name}"), **given)


def _arrange(trace: "Trace", window: str | None, sessions: int | None, seed: int) -> "Trace":
    """Give the sessions their starts; a trace with recorded arrivals keeps them."""
    from kvsim.traces.arrivals import DEFAULT_WINDOW, arrange
    from kvsim.traces.trace import SESSION, TraceError

    if window is not None and trace.clock != SESSION:
        raise TraceError(f"{trace.name}: its arrivals are recorded, so --window does not apply")
    return arrange(trace, window or DEFAULT_WINDOW, seed, sessions)


def _policies(items: list[str]) -> "list[str | Policy]":
    """Return the policies that names and files stand for; a bound stays a name."""
    from kvsim.cache.bounds import BOUNDS
    from kvsim.cache.policies import POLICIES, get

    named = [name for item in items for name in (POLICIES if item == "all" else [item])]
    return [name if name in BOUNDS else get(name) for name in named]


def _items(option: str, values: list[str]) -> list[str]:
    items = [item.strip() for value in values for item in value.split(",")]
    if not all(items):
        raise _usage(f"{option} {','.join(values)!r}: an empty item in the list")
    return items


def _point(capacity: int, hits: int, blocks: int) -> dict[str, Any]:
    ratio = hits / blocks if blocks else None
    return {"capacity": capacity, "hit_blocks": hits, "hit_ratio": ratio}


def _label(policy: str, ttl: float | None) -> str:
    """Return what tables call a policy: LRU with a TTL of 300 s is TTL-300."""
    if ttl is None or policy in {row["name"] for row in BOUNDS_LISTED}:
        return policy
    return f"TTL-{ttl:g}" if policy == "lru" else f"{policy}+TTL-{ttl:g}"


def _runs_table(name: str, runs: list[dict[str, Any]], ttl: float | None) -> Table:
    shown = [run | {"policy": _label(run["policy"], ttl)} for run in runs]
    caption = OPT_CAPTION if any(run["policy"] == "opt" for run in runs) else None
    return terminal.table_of(name, shown, RUN_COLUMNS, caption)


def _traces_table() -> Table:
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
    return terminal.table_of(f"Known traces, besides sample ({raw})", rows, TRACE_COLUMNS)


def _writer(
    as_json: bool, as_csv: bool, output: Path | None
) -> Callable[[Any, Callable[[], Table]], None]:
    """Return a function of (rows, table) that writes the form asked for to where it should go."""
    if as_json and as_csv:
        raise _usage("--json and --csv exclude each other")

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
            _print(text)

    return write


def _print(text: str) -> None:
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        # The interpreter flushes once more at exit, which must not fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(BROKEN_PIPE) from None


def _say(line: str) -> None:
    print(line, file=sys.stderr)


def _say_notes(trace: "Trace") -> None:
    for note in trace.notes:
        _say(f"note: {note}")


def _usage(message: str) -> typer.TyperException:
    return typer.TyperException(message)


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
