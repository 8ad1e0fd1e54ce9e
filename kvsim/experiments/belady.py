"""Belady first: the optimum against every policy, and the slips of a harness that break it."""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import combinations
from os import cpu_count
from typing import Any

import numpy as np
import pandas as pd

from kvsim.cache.capacity import log_spaced
from kvsim.cache.engine import Switches, replay
from kvsim.cache.policies import get
from kvsim.cache.sweep import simulate
from kvsim.experiments.store import Experiment
from kvsim.report.results import Tables
from kvsim.traces.arrivals import arrange
from kvsim.traces.trace import Trace

BOUND_POLICIES = ("lru", "fifo", "lfu", "belady", "opt")
SLIP_POLICIES = ("lru", "fifo", "lfu", "belady")
SMALL = 20
POINTS = 48
HARM_PP = 0.1  # percentage points of hit ratio beyond which a change counts
PROPERTIES = ("set hits", "flat", "no pin")  # what a prefix cache is, switched off
SAMPLED = 16  # leaves, where only the oldest are candidates


@dataclass(frozen=True)
class Slip:
    """A way in which a harness strays from the meaning of the cache."""

    switches: Mapping[str, Any]
    parameters: Mapping[str, Any]


SLIPS: dict[str, Slip] = {
    "no pin": Slip({"pinning": False}, {}),
    "root-first ties": Slip({"touch_order": "root-oldest"}, {}),
    "flat": Slip({"eviction": "flat"}, {}),
    "next use not advanced": Slip({}, {"advance": False}),
    "deepest touched only": Slip({"touch": "deepest"}, {}),
    f"{SAMPLED} oldest leaves": Slip({"candidates": SAMPLED}, {}),
    "set hits": Slip({"hits": "set"}, {}),
}


def tables(
    trace: Trace,
    window: float = 8 * 3600,
    seed: int = 0,
    points: int = POINTS,
    slip_requests: int | None = None,
    slip_sessions: int | None = None,
    slip_capacities: Sequence[int] = (300,),
    pair_capacities: Sequence[int] = (300,),
) -> Tables:
    """Return hits of the policies against the bound, and the effect of every slip.

    Parameters
    ----------
    trace : Trace
        The requests.
    window, seed : float, int
        Seconds and seed of the session starts, where the trace has sessions.
    points : int
        Log-spaced capacities, beside 1 to 20 blocks.
    slip_requests, slip_sessions : int, optional
        The slips run on this many first requests or sampled sessions.
    slip_capacities, pair_capacities : sequence of int
        Blocks; where the slips run singly, and where in pairs too.
    """
    whole = arrange(trace, window, seed)
    part = trace if slip_requests is None else trace.select(np.arange(slip_requests))
    part = arrange(part, window, seed, slip_sessions)
    return {"bound": bound(whole, points), "slips": slips(part, slip_capacities, pair_capacities)}


def bound(trace: Trace, points: int = POINTS) -> pd.DataFrame:
    """Return hit blocks by capacity with a column a policy, beside the blocks asked for.

    Capacities are 1 to 20 blocks and `points` log-spaced ones up to all distinct blocks.
    """
    sizes = sorted({*range(1, SMALL + 1), *log_spaced(1, trace.distinct_blocks, points)})
    cells = [(policy, size) for size in sizes for policy in BOUND_POLICIES]
    with ThreadPoolExecutor(cpu_count()) as pool:
        hits = pool.map(
            lambda cell: {
                "policy": cell[0],
                "capacity": cell[1],
                "hit_blocks": int(simulate(trace, *cell).hit_blocks.sum()),
            },
            cells,
        )
        long = pd.DataFrame(list(hits))
    wide = long.pivot(index="capacity", columns="policy", values="hit_blocks").reset_index()
    wide.columns.name = None
    wide["blocks"] = trace.blocks
    return wide[["capacity", "blocks", *BOUND_POLICIES]]


def slips(trace: Trace, capacities: Sequence[int], pair_capacities: Sequence[int]) -> pd.DataFrame:
    """Return hit blocks of each policy under no slip, each slip and each pair of slips.

    Columns: slip, policy, capacity, hit_blocks, hit_ratio, honest_blocks (the
    policy without slips), lru_blocks (LRU under the same slips), caught
    (whether "does Belady beat LRU?" fails under them).
    """
    singles = [(name,) for name in SLIPS]
    grid = [(), *singles, *combinations(SLIPS, 2)]
    blocks = trace.expand()  # most slips need it, and every row should mean the same
    cells = [
        (names, policy, size)
        for names in grid
        for policy in SLIP_POLICIES
        for size in (pair_capacities if len(names) == 2 else capacities)
        if policy == "belady" or "next use not advanced" not in names
    ]
    with ThreadPoolExecutor(cpu_count()) as pool:
        rows = list(pool.map(lambda cell: _slipped(blocks, *cell), cells))
    table = pd.DataFrame(rows)
    honest = table[table["slip"] == "none"].set_index(["policy", "capacity"])["hit_blocks"]
    table["honest_blocks"] = honest.loc[
        pd.MultiIndex.from_frame(table[["policy", "capacity"]])
    ].to_numpy()
    # LRU has no next use, so its run under that slip is its run without it.
    without = table["slip"].str.replace(r"( \+ )?next use not advanced( \+ )?", "", regex=True)
    lru = table[table["policy"] == "lru"].set_index(["slip", "capacity"])["hit_blocks"]
    table["lru_blocks"] = lru.loc[
        pd.MultiIndex.from_arrays([without.replace("", "none"), table["capacity"]])
    ].to_numpy()
    table["caught"] = (table["policy"] == "belady") & (table["hit_blocks"] < table["lru_blocks"])
    return table


def _slipped(trace: Trace, names: tuple[str, ...], policy: str, capacity: int) -> dict[str, object]:
    chosen = [SLIPS[name] for name in names]
    switches = replace(Switches(), **{k: v for slip in chosen for k, v in slip.switches.items()})
    parameters = {k: v for slip in chosen for k, v in slip.parameters.items()}
    result = replay(trace, get(policy), capacity, switches=switches, parameters=parameters)
    hits = int(result.hit_blocks.sum())
    return {
        "slip": " + ".join(names) or "none",
        "policy": policy,
        "capacity": capacity,
        "hit_blocks": hits,
        "hit_ratio": round(hits / trace.blocks, 6),
    }


def text(trace: str, tables: Tables) -> str:
    """Return the readable report of one trace."""
    hits = tables["bound"]
    best = hits[[policy for policy in BOUND_POLICIES if policy != "opt"]].max(axis=1)
    lines = [
        f"Hit blocks at {len(hits)} capacities (blocks):",
        "",
        hits.to_string(index=False),
        "",
        f"OPT below a policy at {int((best > hits['opt']).sum())} of {len(hits)} capacities; "
        f"pinned Belady below LRU at {int((hits['belady'] < hits['lru']).sum())}.",
        "",
        "Slips of a harness, singly: hit ratio by capacity",
        "",
        slip_ratios(tables["slips"]).to_string(),
        "",
        "Belady under slips, singly and in pairs: change against the honest run (percentage",
        "points of hit ratio), and whether 'does Belady beat LRU?' would have caught it",
        "",
        slip_effects(tables["slips"]).to_string(index=False),
    ]
    return "\n".join(lines)


def slip_ratios(slips: pd.DataFrame) -> pd.DataFrame:
    """Return the hit ratios of single slips: a row a slip and policy, a column a capacity."""
    single = slips[~slips["slip"].str.contains(" + ", regex=False)]
    return single.pivot(index=["slip", "policy"], columns="capacity", values="hit_ratio").round(4)


def slip_effects(slips: pd.DataFrame, policy: str = "belady") -> pd.DataFrame:
    """Return what each slip changes for a policy, worst first."""
    rows = slips[(slips["policy"] == policy) & (slips["slip"] != "none")]
    blocks = (rows["hit_blocks"] / rows["hit_ratio"].where(rows["hit_ratio"] > 0)).round()
    change = 100 * (rows["hit_blocks"] - rows["honest_blocks"]) / blocks
    lead = 100 * (rows["hit_blocks"] - rows["lru_blocks"]) / blocks
    return (
        rows.assign(change_pp=change.round(2), lead_over_lru_pp=lead.round(2))
        .sort_values(["change_pp", "slip", "capacity"], kind="stable")[
            ["slip", "capacity", "hit_ratio", "change_pp", "lead_over_lru_pp", "caught"]
        ]
        .reset_index(drop=True)
    )


def verdicts(bound: pd.DataFrame) -> pd.DataFrame:
    """Return, for each trace, at how many capacities the check holds."""
    rivals = [policy for policy in BOUND_POLICIES if policy != "opt"]
    table = bound.assign(
        opt_below=bound[rivals].max(axis=1) > bound["opt"],
        belady_below=bound["belady"] < bound["lru"],
    )
    return table.groupby("trace", sort=False).agg(
        capacities=("capacity", "size"),
        opt_below_a_policy=("opt_below", "sum"),
        belady_below_lru=("belady_below", "sum"),
    )


def as_ratios(bound: pd.DataFrame) -> pd.DataFrame:
    """Return the hits as a share of block accesses, a row a trace, policy and capacity."""
    long = bound.melt(["trace", "capacity", "blocks"], list(BOUND_POLICIES), "policy", "hit_blocks")
    return long.assign(hit_ratio=long["hit_blocks"] / long["blocks"])


def lru_beside_opt(ratios: pd.DataFrame, trace: str) -> dict[str, str]:
    """Return LRU and OPT where LRU last has under half of OPT, for the introduction's prose."""
    rows = ratios[ratios["trace"] == trace]
    wide = rows.pivot(index="capacity", columns="policy", values="hit_ratio")
    scarce = wide[wide["lru"] < wide["opt"] / 2].iloc[-1]
    return {
        "scarce_capacity": f"{scarce.name:,}",
        "scarce_lru": f"{100 * scarce['lru']:.1f} %",
        "scarce_opt": f"{100 * scarce['opt']:.1f} %",
    }


def effects_of_runs(slips: pd.DataFrame) -> pd.DataFrame:
    """Return what each slip changes for Belady in every trace, a row a run."""
    parts = [
        slip_effects(part).assign(trace=trace) for trace, part in slips.groupby("trace", sort=False)
    ]
    return pd.concat(parts, ignore_index=True)


def effects_by_trace(slips: pd.DataFrame) -> pd.DataFrame:
    """Return what slips change for Belady in every trace, worst first, equal outcomes merged.

    Slips with the same hits at the same trace and capacity, seen alike by the check, are one row,
    named by the shortest; `slips` counts them.
    """
    every = effects_of_runs(slips)
    every = every.assign(length=every["slip"].str.count(r" \+ "))
    # The worst lead over LRU stands for the outcome, as LRU differs under some slips.
    every = every.sort_values(["length", "lead_over_lru_pp"], kind="stable")
    outcome = ["trace", "capacity", "hit_ratio", "change_pp", "caught"]
    merged = every.groupby(outcome, as_index=False, sort=False).agg(
        slip=("slip", "first"),
        slips=("slip", "size"),
        lead_over_lru_pp=("lead_over_lru_pp", "min"),
    )
    table = merged.sort_values(["change_pp", "trace", "slip"], kind="stable")
    size = table["capacity"].map(lambda blocks: f"{blocks:,}")
    more = np.where(table["slips"] > 1, " (or " + (table["slips"] - 1).astype(str) + " more)", "")
    bar = table["trace"] + ": " + table["slip"] + more + ", " + size
    columns = ["trace", "slip", "slips", "capacity", "hit_ratio", "change_pp", "lead_over_lru_pp"]
    return table[[*columns, "caught"]].assign(bar=bar).reset_index(drop=True)


def unseen(slips: pd.DataFrame, count: int = 8) -> pd.DataFrame:
    """Return the harmful outcomes that the check "does Belady beat LRU?" lets pass, worst first."""
    effects = effects_by_trace(slips)
    passed = effects[~effects["caught"] & (effects["change_pp"] < -HARM_PP)]
    return passed.drop(columns=["bar", "caught"]).head(count).reset_index(drop=True)


def slip_counts(slips: pd.DataFrame) -> dict[str, object]:
    """Return how many runs of Belady with slips were harmed, helped and caught.

    Names with `distinct` count outcomes (trace, capacity, hit ratio) instead of runs: several slips
    have one outcome.
    """
    runs = effects_of_runs(slips)
    harmed = runs["change_pp"] < -HARM_PP
    kinds = {
        "slip_runs": runs,
        "slip_harmed": runs[harmed],
        "slip_gained": runs[runs["change_pp"] > HARM_PP],
        "slip_caught": runs[runs["caught"]],
        "slip_unseen": runs[~runs["caught"] & harmed],
    }
    outcome = ["trace", "capacity", "hit_ratio"]
    counts: dict[str, object] = {name: len(rows) for name, rows in kinds.items()}
    for name, rows in kinds.items():
        counts[f"{name}_distinct"] = len(rows.drop_duplicates(outcome))
    return counts | {"harm": f"{HARM_PP:g}"}


def slip_setups(provenance: Mapping[str, Mapping[str, Any]]) -> str:
    """Return what of each trace the slips ran on, from the provenance of the results.

    Parameters
    ----------
    provenance : dict
        As `kvsim.report.results.load_provenance` gives it.
    """
    parts = []
    for trace, facts in provenance.items():
        used = facts["parameters"]
        sessions, requests = used.get("slip_sessions"), used.get("slip_requests")
        if sessions is not None:
            parts.append(f"{sessions} sessions of {trace}")
        elif requests is not None:
            parts.append(f"the first {requests:,} requests of {trace}")
        else:
            parts.append(f"all of {trace}")
    return ", ".join(parts)


def property_effects(slips: pd.DataFrame) -> pd.DataFrame:
    """Return in how many runs switching a property off changes the hit ratio, by policy.

    A run is a trace and capacity; columns are the properties, then `runs`.
    """
    keys = ["trace", "policy", "capacity"]
    wide = slips.pivot_table(index=keys, columns="slip", values="hit_blocks")
    wide = wide[["none", *PROPERTIES]].dropna()
    changed = wide[list(PROPERTIES)].ne(wide["none"], axis=0)
    table = changed.groupby("policy", sort=False).sum()
    return table.assign(runs=changed.groupby("policy", sort=False).size())


def property_words(slips: pd.DataFrame) -> dict[str, object]:
    """Return in how many runs each property changes hits, for each policy and over all."""
    table = property_effects(slips)
    told: dict[str, object] = {}
    for slip in PROPERTIES:
        key = slip.replace(" ", "_")
        told[f"{key}_changes"] = f"{int(table[slip].sum())} of {int(table['runs'].sum())}"
        told[f"{key}_policies"] = ", ".join(map(str, table.index[table[slip] > 0])) or "none"
    return told


def pin_story(slips: pd.DataFrame) -> pd.DataFrame:
    """Return Belady and LRU with and without pins and root-first ties, a column a set-up."""
    names = ["none", "no pin", "root-first ties", "no pin + root-first ties"]
    names += ["root-first ties + flat"]
    rows = slips[slips["slip"].isin(names) & slips["policy"].isin(["lru", "belady"])]
    wide = rows.pivot_table(
        index=["trace", "capacity", "policy"], columns="slip", values="hit_ratio"
    )
    return wide[names].dropna().round(4)


EXPERIMENT = Experiment(
    6,
    "belady",
    "Belady sanity check: the bound, and what breaks the check",
    tables,
    text,
    parameters={
        "conversation": {
            "slip_requests": 6_000,
            "slip_capacities": [50, 100, 300, 1_000],
            "pair_capacities": [50, 300, 1_000],
        },
        "weka": {
            "slip_sessions": 40,
            "slip_capacities": [1_000, 2_000, 5_000, 20_000],
            "pair_capacities": [2_000],
        },
        "sample": {
            "slip_sessions": 12,
            "slip_capacities": [1_000, 4_000],
            "pair_capacities": [1_000],
        },
        None: {"slip_requests": 2_000},
    },
    part={"weka": {"slip_capacities": [2_000], "pair_capacities": []}},
)
