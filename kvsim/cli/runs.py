"""Commands that replay: policies at capacities, LRU's curve, and which policies there are."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kvsim.cli.inputs import arrange, chosen_policies, items, open_trace
from kvsim.cli.models import ModelName, token_bytes
from kvsim.cli.options import (
    CACHE,
    CAPACITY,
    AsCsv,
    AsJson,
    BlockSize,
    BytesPerToken,
    Eviction,
    Format,
    HitCap,
    Hits,
    KeepRepeats,
    MeasureFrom,
    Nested,
    NoPin,
    Output,
    PartialBlocks,
    Plot,
    Policies,
    Rows,
    Seed,
    Sessions,
    TimeUnit,
    TouchOrder,
    TraceArgument,
    Ttl,
    Window,
    flag,
)
from kvsim.cli.output import plotter, say, say_notes, usage_error, writer
from kvsim.report.terminal import Meter, Row, Sheet

if TYPE_CHECKING:
    from kvsim.cache.policy import Policy
    from kvsim.traces.trace import Trace

INTERRUPTED = 130

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
    "recompute_blocks": "recompute\nblocks",
    "compulsory_blocks": "compulsory\nblocks",
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
BOUND_NAMES = frozenset(str(row["name"]) for row in BOUNDS_LISTED)
OPT_REMARK = "opt bounds hit blocks before the hit cap; it bounds neither tokens nor capped hits."
TTL_REMARK = "opt and infinite take no --ttl: nothing expires there."


def simulate(
    trace: TraceArgument,
    capacity: Annotated[list[str], CAPACITY],
    policy: Policies = None,
    ttl: Ttl = None,
    eviction: Eviction = "leaf",
    no_pin: NoPin = False,
    touch_order: TouchOrder = "deepest-oldest",
    hits: Hits = "prefix",
    hit_cap: HitCap = None,
    bytes_per_token: BytesPerToken = None,
    model: ModelName = None,
    measure_from: MeasureFrom = "0",
    window: Window = None,
    sessions: Sessions = None,
    seed: Seed = 0,
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
    plot: Plot = None,
) -> None:
    """Replay a trace: one row for each policy and capacity, policy by policy.

    Lists are comma-separated: --policy lru,belady,opt --capacity 10k,30k,50k

    Runs use all cores; Ctrl-C ends them and keeps the rows that are done.
    """
    write = writer(as_json, as_csv, output)
    draw = plotter(plot)
    from kvsim.cache import capacity as capacities
    from kvsim.cache.engine import Switches
    from kvsim.traces.durations import parse_duration

    lifetime = None if ttl is None else parse_duration(ttl)
    unit = token_bytes(bytes_per_token, model)
    policies = chosen_policies(items("--policy", policy or ["lru"]))
    wanted = items("--capacity", capacity)
    switches = Switches(eviction, not no_pin, touch_order, hits, hit_cap)
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
        loaded = arrange(loaded, window, sessions, seed)
        sizes = [capacities.parse(size, loaded, unit) for size in wanted]
        table = _grid(
            *(meter, loaded, policies, sizes),
            seed=seed,
            ttl=lifetime,
            switches=switches,
            measure_from=measure_from,
        )
    say_notes(loaded)
    if table:
        shown = [row | {"policy": _label(row["policy"], lifetime)} for row in table]
        write(
            table,
            Sheet(
                loaded.name, shown, RUN_COLUMNS, 3, remarks=_remarks(table, lifetime, measure_from)
            ),
        )
        draw(loaded.name, shown)
    cells = len(policies) * len(sizes)
    if len(table) < cells:
        say(f"interrupted: {len(table)} of {cells} cells done")
        raise typer.Exit(INTERRUPTED)


def curve(
    trace: TraceArgument,
    capacity: Annotated[list[str] | None, CAPACITY] = None,
    every: Annotated[
        bool,
        flag("--all", CACHE, "Every capacity at which the hits rise."),
    ] = False,
    ttl: Ttl = None,
    bytes_per_token: BytesPerToken = None,
    model: ModelName = None,
    measure_from: MeasureFrom = "0",
    window: Window = None,
    sessions: Sessions = None,
    seed: Seed = 0,
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
    plot: Plot = None,
) -> None:
    """Give LRU's exact hits at many capacities, from one pass.

    Without --capacity or --all: 64 log-spaced capacities, and the first that reaches the hits
    of an infinite cache.
    """
    write = writer(as_json, as_csv, output)
    draw = plotter(plot)
    if every and capacity:
        raise usage_error("--all and --capacity exclude each other")
    wanted = items("--capacity", capacity) if capacity else None
    unit = token_bytes(bytes_per_token, model)
    from kvsim.cache import curves
    from kvsim.traces.durations import parse_duration

    lifetime = None if ttl is None else parse_duration(ttl)
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
        loaded = arrange(loaded, window, sessions, seed)
        points = curves.curve(
            loaded,
            wanted,
            every=every,
            ttl=lifetime,
            bytes_per_token=unit,
            measure_from=measure_from,
        )
    table: list[Any] = points.to_dict("records")
    label = "LRU" if lifetime is None else _label("lru", lifetime)
    say_notes(loaded)
    sheet = Sheet(
        *(f"{loaded.name}, {label}", table, CURVE_COLUMNS),
        keys=2,
        remarks=_counted(measure_from),
    )
    write(table, sheet)
    draw(loaded.name, [row | {"policy": label} for row in table])


def policies(as_json: AsJson = False, as_csv: AsCsv = False, output: Output = None) -> None:
    """List the eviction policies."""
    write = writer(as_json, as_csv, output)
    from kvsim.cache.policies import known

    catalogue: list[dict[str, Any]] = [
        {"name": name, "source": policy.source, "needs": list(policy.needs)}
        for name, policy in known().items()
    ]
    catalogue += BOUNDS_LISTED
    wrapping = frozenset({"needs", "source"})
    write(catalogue, Sheet("Policies", catalogue, POLICY_COLUMNS, keys=1, wrapping=wrapping))


def _grid(
    meter: Meter,
    trace: "Trace",
    policies: "Mapping[str, str | Policy]",
    sizes: Sequence[int],
    *,
    seed: int,
    **how: Any,
) -> list[dict[str, Any]]:
    """Return the grid's rows, policy by policy; those that were done if it is interrupted."""
    from kvsim.cache import sweep

    done: dict[tuple[str, int], Row] = {}

    def keep(row: Row) -> None:
        done[row["policy"], row["capacity"]] = row

    each = tuple(dict.fromkeys(sizes))
    tell = meter.task("simulating")
    tell(0, len(policies) * len(each))
    with suppress(KeyboardInterrupt):
        sweep.run(
            trace, tuple(policies.values()), each, seeds=(seed,), keep=keep, progress=tell, **how
        )
    cells = [(name, size) for name in policies for size in sizes]
    return [{field: done[cell][field] for field in RUN_FIELDS} for cell in cells if cell in done]


def _label(policy: str, ttl: float | None) -> str:
    """Return what tables call a policy: LRU with a TTL of 300 s is TTL-300."""
    if ttl is None or policy in BOUND_NAMES:
        return policy
    return f"TTL-{ttl:g}" if policy == "lru" else f"{policy}+TTL-{ttl:g}"


def _remarks(runs: Sequence[Row], ttl: float | None, measure_from: str) -> tuple[str, ...]:
    shown = {run["policy"] for run in runs}
    opt = (OPT_REMARK,) if "opt" in shown else ()
    bound = (TTL_REMARK,) if ttl is not None and shown & BOUND_NAMES else ()
    return (*opt, *bound, *_counted(measure_from))


def _counted(measure_from: str) -> tuple[str, ...]:
    whole = measure_from == "0"
    return () if whole else (f"Counted from {measure_from} on; flows are of the whole run.",)
