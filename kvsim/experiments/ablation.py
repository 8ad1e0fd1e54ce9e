"""The study's three ideas, singly and together, against LRU, TTL, LFU and the optimum."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from os import cpu_count
from typing import Any

import numpy as np
import pandas as pd

from kvsim.analysis.averages import mean_over
from kvsim.cache.capacity import log_spaced
from kvsim.cache.costs import LLAMA_3_70B, prefill_cost, recompute_cost, saving
from kvsim.cache.engine import Switches
from kvsim.cache.policies import get
from kvsim.cache.policies.hazard import FACTORIAL
from kvsim.cache.result import Result
from kvsim.cache.sweep import simulate
from kvsim.experiments.plain import NO_DATA, count, fine_percent, lay_out, percent
from kvsim.experiments.store import Experiment
from kvsim.report import published
from kvsim.report.results import Tables
from kvsim.traces.arrivals import arrange
from kvsim.traces.trace import Trace

IDEAS = tuple(policy.name for policy in FACTORIAL)
POLICIES = ("lru", "ttl-300", "lfu", *IDEAS, "belady", "opt")
TTL_300 = 300.0  # seconds
POINTS = 12
SEEDS = (0, 1, 2, 3, 4)
ALL = "all sessions"
ONE_BLOCK_LIMIT = 10_000_000  # block accesses; touching only the deepest block runs block by block

# Values beside the defaults, one at a time, of the policy that shows the parameter's effect.
ALTERNATIVES: dict[tuple[str, str], tuple[float, ...]] = {
    ("h", "horizon"): (30.0, 60.0, 1800.0, 28_800.0),
    ("h", "gap"): (10.0, 300.0, 1800.0),
    ("h", "weight"): (0.3, 5.0, 50.0),
    ("h", "ends"): (0.01, 0.2, 5.0),
    ("c", "doubling"): (13_000.0, 26_000.0, 209_000.0),
    ("hc", "doubling"): (13_000.0, 26_000.0, 209_000.0),
}
CANDIDATES = (4, 16, 64, 256, 0)  # least recently used leaves ranked; 0 is all
SHORTCUT_POLICIES = ("lru", "h", "hc", "hcg")


def tables(
    trace: Trace,
    window: float = 8 * 3600,
    seed: int = 0,
    capacities: Sequence[int] = published.STUDY_CAPACITIES,
    points: int = POINTS,
    sample: int = 40,
    seeds: Sequence[int] = SEEDS,
    varied_at: Sequence[int] = (8_000, 20_000),
) -> Tables:
    """Return hits and costs of every combination of ideas.

    Parameters
    ----------
    trace : Trace
        The requests.
    window, seed : float, int
        Seconds and seed of the session starts, where the trace has sessions.
    capacities : sequence of int
        Blocks, beside `points` log-spaced ones from 1,000 to all distinct blocks.
    points : int
        Log-spaced capacities.
    sample : int
        Sessions of the smaller samples, as in the study.
    seeds : sequence of int
        Of the samples and of their starts.
    varied_at : sequence of int
        Blocks, where parameters are varied.

    Returns
    -------
    dict of DataFrame
        ``cells`` (a row a sample, seed, policy and capacity), ``sensitivity`` (a row
        a policy, parameter, value and capacity; all sessions), ``candidates`` (a row a policy,
        number of leaves ranked and capacity; all sessions) and ``touch`` (a row a policy,
        kind of touch and capacity; on one sample).
    """
    whole = arrange(trace, window, seed)
    varied_at = [size for size in varied_at if size < whole.distinct_blocks]
    small = whole
    if trace.sessions is not None and trace.sessions > sample:
        small = arrange(trace, window, seeds[0], sample)
    with ThreadPoolExecutor(cpu_count()) as pool:
        cells = []
        for name, arrangements in _samples(trace, window, seed, sample, seeds):
            # All samples at the same capacities, so that they can be averaged.
            most = min(arranged.distinct_blocks for _, arranged in arrangements)
            sizes = _sizes(most, capacities, points)
            for one, arranged in arrangements:
                part = _cells(arranged, sizes, pool).assign(sample=name, seed=one)
                cells.append(part[["sample", "seed", *CELL]])
        return {
            "cells": pd.concat(cells, ignore_index=True),
            "sensitivity": _sensitivity(whole, varied_at, pool),
            "candidates": _candidates(whole, varied_at, pool),
            "touch": _touch(small, varied_at, pool),
        }


def _samples(
    trace: Trace, window: float, seed: int, sample: int, seeds: Sequence[int]
) -> Iterator[tuple[str, list[tuple[int, Trace]]]]:
    """Yield (name, seeds with their arrangements): the whole trace, then samples of sessions."""
    yield ALL, [(seed, arrange(trace, window, seed))]
    if trace.sessions is not None and trace.sessions > sample:
        yield f"{sample} sessions", [(one, arrange(trace, window, one, sample)) for one in seeds]


def _sizes(most: int, capacities: Sequence[int], points: int) -> list[int]:
    return sorted(
        {*log_spaced(min(1000, most), most, points), *(c for c in capacities if c < most)}
    )


CELL = [
    "policy",
    "capacity",
    "hit_ratio",
    "prefill_pflop",
    "recompute_pflop",
    "hit_gain",
    "prefill_saving",
    "recompute_saving",
]


def _cells(trace: Trace, sizes: Sequence[int], pool: ThreadPoolExecutor) -> pd.DataFrame:
    """Return `CELL` for every policy and capacity; gains and savings are over LRU."""
    grid = [(policy, size) for policy in POLICIES for size in sizes]
    runs = dict(zip(grid, pool.map(lambda cell: _run(trace, *cell), grid), strict=True))
    rows = []
    for (policy, size), run in runs.items():
        lru = runs["lru", size]
        prefill, recompute = prefill_cost(trace, run), recompute_cost(trace, run)
        ratio, base = _hit_ratio(trace, run), _hit_ratio(trace, lru)
        values = {
            "policy": policy,
            "capacity": size,
            "hit_ratio": _rounded(ratio, 6),
            "prefill_pflop": _rounded(prefill.sum() / 1e15, 3),
            "recompute_pflop": _rounded(recompute.sum() / 1e15, 3),
            "hit_gain": _rounded(ratio - base, 6),
            "prefill_saving": _rounded(saving(prefill, prefill_cost(trace, lru)), 6),
            "recompute_saving": _rounded(saving(recompute, recompute_cost(trace, lru)), 6),
        }
        rows.append(values)
    return pd.DataFrame(rows, columns=CELL)


def _run(trace: Trace, policy: str, capacity: int, **options: Any) -> Result:
    if policy == "ttl-300":
        return simulate(trace, "lru", capacity, ttl=TTL_300)
    return simulate(trace, policy, capacity, **options)


def _hit_ratio(trace: Trace, run: Result) -> float:
    return float(run.hit_blocks.sum() / trace.blocks) if trace.blocks else float("nan")


def _rounded(value: float | None, digits: int) -> float:
    # Adding 0 turns -0.0 into 0.0.
    return float("nan") if value is None else round(float(value), digits) + 0.0


def _sensitivity(trace: Trace, sizes: Sequence[int], pool: ThreadPoolExecutor) -> pd.DataFrame:
    """Return the gain over LRU with each parameter at its default and at other values."""
    grid = []
    for (policy, parameter), others in ALTERNATIVES.items():
        default = get(policy).parameters[parameter]
        grid += [
            {
                "policy": policy,
                "parameter": parameter,
                "value": value,
                "default": value == default,
                "capacity": size,
            }
            for value in sorted({*others, default})
            for size in sizes
        ]
    run = partial(_gain, trace, _lru_ratios(trace, sizes))
    gains = pool.map(
        lambda cell: run(
            cell["policy"], cell["capacity"], parameters={cell["parameter"]: cell["value"]}
        ),
        grid,
    )
    return _table(grid, gains, ["policy", "parameter", "value", "default", "capacity"]).round(
        {"value": 3}
    )


def _candidates(trace: Trace, sizes: Sequence[int], pool: ThreadPoolExecutor) -> pd.DataFrame:
    """Return the gain over LRU if only the k least recently used leaves are ranked."""
    grid = [
        {"policy": policy, "candidates": k, "capacity": size}
        for policy in SHORTCUT_POLICIES[1:]
        for k in CANDIDATES
        for size in sizes
    ]
    run = partial(_gain, trace, _lru_ratios(trace, sizes))
    gains = pool.map(
        lambda cell: run(
            cell["policy"], cell["capacity"], switches=Switches(candidates=cell["candidates"])
        ),
        grid,
    )
    return _table(grid, gains, ["policy", "candidates", "capacity"])


def _touch(trace: Trace, sizes: Sequence[int], pool: ThreadPoolExecutor) -> pd.DataFrame:
    """Return the gain over LRU (which touches the chain), and how many blocks are touched."""
    columns = ["policy", "touch", "capacity"]
    if trace.blocks > ONE_BLOCK_LIMIT:
        return _table([], [], [*columns, "touched_blocks"])
    grid: list[dict[str, Any]] = [
        {"policy": policy, "touch": touch, "capacity": size}
        for policy in SHORTCUT_POLICIES
        for touch in ("chain", "deepest")
        for size in sizes
    ]
    ratios = _lru_ratios(trace, sizes)

    def run(cell: Mapping[str, Any]) -> dict[str, Any]:
        result = simulate(
            trace, cell["policy"], cell["capacity"], switches=Switches(touch=cell["touch"])
        )
        touched = trace.blocks
        if cell["touch"] == "deepest":
            # What was inserted, and the last block of a chain that was resident in full.
            whole = (result.hit_blocks == trace.chain_blocks) & (trace.chain_blocks > 0)
            touched = (result.inserted_blocks or 0) + int(whole.sum())
        return {"touched_blocks": touched, **_gains(trace, ratios, result)}

    return _table(grid, pool.map(run, grid), [*columns, "touched_blocks"])


def _lru_ratios(trace: Trace, sizes: Sequence[int]) -> dict[int, float]:
    return {size: _hit_ratio(trace, simulate(trace, "lru", size)) for size in sizes}


def _gain(
    trace: Trace, ratios: Mapping[int, float], policy: str, capacity: int, **options: Any
) -> dict[str, Any]:
    return _gains(trace, ratios, simulate(trace, policy, capacity, **options))


def _gains(trace: Trace, ratios: Mapping[int, float], result: Result) -> dict[str, float]:
    ratio = _hit_ratio(trace, result)
    return {
        "hit_ratio": _rounded(ratio, 6),
        "hit_gain": _rounded(ratio - ratios[result.capacity], 6),
    }


def _table(grid: Sequence[dict[str, Any]], gains: Any, columns: Sequence[str]) -> pd.DataFrame:
    rows = [cell | gain for cell, gain in zip(grid, gains, strict=True)]
    return pd.DataFrame(rows, columns=[*columns, "hit_ratio", "hit_gain"])


def spread(cells: pd.DataFrame) -> pd.DataFrame:
    """Return mean, least and most over seeds, a row a sample, policy and capacity.

    Columns: sample, policy, capacity, seeds, then for each of hit_ratio, hit_gain,
    prefill_saving, recompute_saving the mean and, with the suffixes ``_sd``, ``_min`` and ``_max``,
    the standard deviation between seeds (NaN for one) and the range.
    """
    values = ["hit_ratio", "hit_gain", "prefill_saving", "recompute_saving"]
    groups = cells.groupby(["sample", "policy", "capacity"], sort=False)
    whole = groups.agg(seeds=("seed", "nunique"))
    for value in values:
        # A saving that one seed has not (LRU recomputes nothing there) has no mean either.
        whole[value] = groups[value].agg(lambda seeds: seeds.mean(skipna=False))
        whole[f"{value}_sd"] = groups[value].std()
        whole[f"{value}_min"] = groups[value].min()
        whole[f"{value}_max"] = groups[value].max()
    return whole.reset_index()


def beside_study(cells: pd.DataFrame) -> pd.DataFrame:
    """Return the study's cells beside ours, a row a policy and capacity that it prints.

    Ours are the samples of sessions, or the whole trace where there are none. Columns:
    those of `spread`, `study_hit_ratio`, `study_hit_gain`, `study_saving`,
    `study_saving_by_hits` (the saving if a missed block cost the same wherever it
    stands), and whether the signs agree: `same_hit_sign` and `same_cost_sign`.
    """
    ours = spread(cells)
    ours = ours[ours["sample"] == ours["sample"].iloc[-1]]
    study = published.study_ablation().rename(
        columns={"hit_ratio": "study_hit_ratio", "saving": "study_saving"}
    )
    lru = study[study["policy"] == "lru"].set_index("capacity")["study_hit_ratio"]
    base = study["capacity"].map(lru)
    study["study_hit_gain"] = (study["study_hit_ratio"] - base).round(4)
    study["study_saving_by_hits"] = 1 - (1 - study["study_hit_ratio"]) / (1 - base)
    both = study.merge(ours, on=["policy", "capacity"])
    both["same_hit_sign"] = _sign(both["hit_gain"]) == _sign(both["study_hit_gain"])
    same = _sign(both["prefill_saving"]) == _sign(both["study_saving"])
    both["same_cost_sign"] = same.astype("boolean").where(both["study_saving"].notna())
    return both


def sample_words(cells: pd.DataFrame, trace: str = "weka") -> dict[str, object]:
    """Return the samples beside the study's, and how far LRU is below the infinite cache there."""
    own = cells[(cells["trace"] == trace) & (cells["policy"] == "lru") & (cells["sample"] != ALL)]
    infinite = own.groupby("seed")["hit_ratio"].max()
    below = own.assign(below=100 * (own["seed"].map(infinite) - own["hit_ratio"]))
    means = mean_over(below, ["below"], by=("capacity",))["below"]
    told = [f"{means[size]:.1f} ({size:,})" for size in published.STUDY_CAPACITIES if size in means]
    sample = str(own["sample"].iloc[0]) if len(own) else "no sample"
    return {"ablation_sample": sample, "ablation_below_infinite": ", ".join(told)}


def agreement(study: pd.DataFrame) -> dict[str, object]:
    """Return in how many of the study's cells the sign of the difference from LRU agrees."""
    hits, costs = study[study["policy"] != "lru"], study.dropna(subset="study_saving")
    return {
        "hit_agreement": f"{int(hits['same_hit_sign'].sum())} of {len(hits)}",
        "cost_agreement": f"{int(costs['same_cost_sign'].sum())} of {len(costs)}",
    }


def factorial(cells: pd.DataFrame) -> pd.DataFrame:
    """Return the gain over LRU in points for every combination of ideas, on one trace."""
    rows = cells[cells["policy"].isin([policy.name for policy in FACTORIAL])]
    rows = rows.assign(gain_pp=100 * rows["hit_gain"])
    wide = rows.pivot_table(index="policy", columns="capacity", values="gain_pp", sort=False)
    return wide.sort_index(axis=1).round(2)


def _sign(gain: pd.Series) -> pd.Series:
    # The study prints two decimals of a percent: less than half of one is no difference.
    return np.sign(gain.where(gain.abs() >= 0.5e-4, 0.0))


def text(trace: str, tables: Tables) -> str:
    """Return the readable report of one trace."""
    cells = tables["cells"]
    whole = cells[cells["sample"] == ALL]
    lines = [
        f"Costs are those of {LLAMA_3_70B.name} ({LLAMA_3_70B.linear:.4g} FLOPs a token and "
        f"{LLAMA_3_70B.attention:.4g} for each token attended to).",
        "Savings are 1 - cost / cost of LRU; negative is worse. OPT bounds hit blocks, not costs.",
        "",
    ]
    columns: tuple[tuple[str, str, Callable[[Any], str]], ...] = (
        ("hit_ratio", "Hit ratio (blocks)", fine_percent),
        ("prefill_saving", "Saving of prefill cost over LRU", saved),
        ("recompute_saving", "Saving of recompute cost over LRU", saved),
    )
    for column, title, shown in columns:
        lines += [f"{title}, {ALL}, by capacity (blocks):", "", _wide(whole, column, shown), ""]
    samples = spread(cells[cells["sample"] != ALL])
    for sample, part in samples.groupby("sample", sort=False):
        lines += [f"Mean hit ratio (blocks), {sample}, {part['seeds'].max()} seeds:", ""]
        lines += [_wide(part, "hit_ratio", fine_percent), ""]
        lines += [_spread_text(part[part["capacity"].isin(published.STUDY_CAPACITIES)]), ""]
    both = beside_study(cells)
    if len(both):
        lines += _study_text(both)
    lines += ["Gain in hit ratio over LRU with other parameters (* default):", ""]
    lines += [_sensitivity_text(tables["sensitivity"]), ""]
    lines += ["The same if only the k least recently used leaves are ranked:", ""]
    lines += [_candidates_text(tables["candidates"]), ""]
    if len(tables["touch"]):
        lines += ["The same if a request touches only what it inserted and its deepest block:", ""]
        lines += [_touch_text(tables["touch"]), ""]
    return "\n".join(lines)


def _wide(cells: pd.DataFrame, column: str, shown: Callable[[Any], str]) -> str:
    wide = cells.pivot(index="policy", columns="capacity", values=column)
    wide = wide.loc[list(dict.fromkeys(cells["policy"]))].reset_index()
    sizes = [size for size in wide.columns if size != "policy"]
    return lay_out(
        wide, {"policy": ("policy", str), **{size: (count(size), shown) for size in sizes}}
    )


def saved(value: Any) -> str:
    """Return a saving in percent; beyond tenfold, where LRU costs next to nothing, only that."""
    if abs(value) > 10:
        return "< -1000 %" if value < 0 else "> 1000 %"
    return percent(value)


def points_of(value: Any) -> str:
    """Return a difference of shares of 1 in percentage points."""
    return NO_DATA if pd.isna(value) else f"{100 * value:+.2f} pp"


def _spread_text(samples: pd.DataFrame) -> str:
    """Lay out mean ± standard deviation over seeds."""
    values: dict[str, tuple[str, Callable[[Any], str]]] = {
        "hit_ratio": ("hit ratio", fine_percent),
        "hit_gain": ("hit ratio - LRU", points_of),
        "prefill_saving": ("prefill saving", saved),
        "recompute_saving": ("recompute saving", saved),
    }
    shown = samples[["policy", "capacity"]].copy()
    for value, (_, show) in values.items():
        pairs = zip(samples[value], samples[f"{value}_sd"], strict=True)
        shown[value] = [
            f"{show(mean)} ± {show(deviation).lstrip('+')}" for mean, deviation in pairs
        ]
    return lay_out(
        shown.sort_values("capacity", kind="stable"),
        {
            "capacity": ("capacity", count),
            "policy": ("policy", str),
            **{value: (heading, str) for value, (heading, _) in values.items()},
        },
    )


def _study_text(both: pd.DataFrame) -> list[str]:
    hits, costs = both[both["policy"] != "lru"], both.dropna(subset="study_saving")
    agree = f"{hits['same_hit_sign'].sum()} of {len(hits)} cells"
    cost_agree = f"{int(costs['same_cost_sign'].sum())} of {len(costs)}"
    return [
        f"The study's ablation beside ours ({both['sample'].iloc[0]}). Sign of the difference from",
        f"LRU agrees in hits in {agree}, in prefill cost in {cost_agree}.",
        "",
        lay_out(
            both,
            {
                "policy": ("policy", str),
                "capacity": ("capacity", count),
                "study_hit_ratio": ("study", fine_percent),
                "hit_ratio": ("ours", fine_percent),
                "study_hit_gain": ("study - LRU", points_of),
                "hit_gain": ("ours - LRU", points_of),
                "study_saving": ("study cost", percent),
                "study_saving_by_hits": ("by its hits alone", percent),
                "prefill_saving": ("our prefill", saved),
                "recompute_saving": ("our recompute", saved),
            },
        ),
        "",
    ]


def _sensitivity_text(table: pd.DataFrame) -> str:
    marked = table.assign(
        value=[
            f"{value:g}{'*' if default else ''}"
            for value, default in zip(table["value"], table["default"], strict=True)
        ]
    )
    return _gains_text(marked, ["policy", "parameter", "value"])


def _candidates_text(table: pd.DataFrame) -> str:
    named = table["candidates"].map(lambda k: "all" if k == 0 else str(k))
    return _gains_text(table.assign(candidates=named), ["policy", "candidates"])


def _touch_text(table: pd.DataFrame) -> str:
    return lay_out(
        table,
        {
            "policy": ("policy", str),
            "touch": ("touched", str),
            "capacity": ("capacity", count),
            "touched_blocks": ("block touches", count),
            "hit_ratio": ("hit ratio", fine_percent),
            "hit_gain": ("gain", points_of),
        },
    )


def _gains_text(table: pd.DataFrame, labels: Sequence[str]) -> str:
    if table.empty:
        return NO_DATA
    order = list(table[list(labels)].drop_duplicates().itertuples(index=False, name=None))
    wide = table.pivot(index=list(labels), columns="capacity", values="hit_gain").loc[order]
    sizes = list(wide.columns)
    return lay_out(
        wide.reset_index(),
        {label: (label, str) for label in labels}
        | {size: (count(size), points_of) for size in sizes},
    )


EXPERIMENT = Experiment(
    4,
    "ablation",
    "Ablation: hazard, recompute cost and coherent sessions against LRU and the optimum",
    tables,
    text,
    parameters={"weka": {"varied_at": (20_000, 50_000, 100_000)}},
    part={"weka": None, "conversation": None},
)
