"""Commands that replay: policies at capacities, LRU's curve, and which policies there are."""

from typing import Annotated, Any, Literal

import typer
from rich.table import Table

from kvsim.cli.inputs import arrange, chosen_policies, items, open_trace
from kvsim.cli.options import (
    CAPACITY,
    AsCsv,
    AsJson,
    BlockSize,
    BytesPerToken,
    Format,
    KeepRepeats,
    Nested,
    Output,
    Rows,
    Seed,
    Sessions,
    TraceArgument,
    Ttl,
    Window,
)
from kvsim.cli.output import say_notes, usage_error, writer
from kvsim.report import terminal
from kvsim.report.terminal import Meter

CURVE_POINTS = 64
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
BOUNDS_LISTED = (
    {"name": "opt", "source": "bound: Belady 1966, with bypass", "needs": ["future"]},
    {"name": "infinite", "source": "bound: nothing is ever evicted", "needs": []},
)
OPT_CAPTION = "opt bounds hit blocks before the hit cap; it bounds neither tokens nor capped hits."


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
    write = writer(as_json, as_csv, output)
    from kvsim.cache import capacity as capacities
    from kvsim.cache.engine import Switches
    from kvsim.cache.sweep import simulate as run
    from kvsim.traces.durations import parse_duration

    lifetime = None if ttl is None else parse_duration(ttl)
    policies = chosen_policies(items("--policy", policy or ["lru"]))
    sizes = items("--capacity", capacity)
    switches = Switches(eviction, not no_pin, touch_order, hits, hit_cap)
    table = []
    with Meter() as meter:
        loaded = open_trace(meter, trace, format, rows, nested, block_size, keep_repeats)
        loaded = arrange(loaded, window, sessions, seed)
        blocks = [capacities.parse(size, loaded, bytes_per_token) for size in sizes]
        cells = [(chosen, size) for chosen in policies for size in blocks]
        for done, (chosen, size) in enumerate(cells):
            meter("simulating", done, len(cells))
            result = run(loaded, chosen, size, ttl=lifetime, switches=switches, seed=seed)
            summary = result.row()
            table.append({field: summary[field] for field in RUN_FIELDS})
    say_notes(loaded)
    write(table, lambda: _runs_table(loaded.name, table, lifetime))


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
    write = writer(as_json, as_csv, output)
    if every and capacity:
        raise usage_error("--all and --capacity exclude each other")
    from kvsim.cache import capacity as capacities
    from kvsim.cache.curves import lru_curve
    from kvsim.traces.durations import parse_duration

    lifetime = None if ttl is None else parse_duration(ttl)
    with Meter() as meter:
        loaded = open_trace(meter, trace, format, rows, nested, block_size, keep_repeats)
        loaded = arrange(loaded, window, sessions, seed)
        sizes = [
            capacities.parse(size, loaded, bytes_per_token)
            for size in (items("--capacity", capacity) if capacity else [])
        ]
        hits = lru_curve(loaded, lifetime)
    if every:
        sizes = [0, *(index + 1 for index in (hits[1:] > hits[:-1]).nonzero()[0].tolist())]
    elif not capacity:
        enough = int(hits.searchsorted(hits[-1]))
        spaced = capacities.log_spaced(1, loaded.distinct_blocks, CURVE_POINTS)
        sizes = sorted({*spaced, enough})
    table = [_point(size, int(hits[min(size, len(hits) - 1)]), loaded.blocks) for size in sizes]
    say_notes(loaded)
    title = f"{loaded.name}, {'LRU' if lifetime is None else _label('lru', lifetime)}"
    write(table, lambda: terminal.table_of(title, table, CURVE_COLUMNS))


def policies(as_json: AsJson = False, as_csv: AsCsv = False, output: Output = None) -> None:
    """List the eviction policies."""
    write = writer(as_json, as_csv, output)
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
