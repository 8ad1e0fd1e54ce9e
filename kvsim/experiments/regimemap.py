"""What binds at every capacity and TTL: the map of regimes, from a pass a TTL."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from kvsim.analysis import regimes
from kvsim.analysis.boundary import PREDICTIONS, boundary
from kvsim.cache.capacity import log_spaced
from kvsim.cache.expiry import flow
from kvsim.cache.sweep import run
from kvsim.experiments import compare
from kvsim.experiments.plain import count, label, lay_out, percent
from kvsim.experiments.store import Experiment
from kvsim.report.results import Tables
from kvsim.report.terminal import Meter
from kvsim.traces.arrivals import arrange
from kvsim.traces.trace import SESSION, Trace

NONE = np.inf  # seconds: no block expires
TTLS = (10.0, 30.0, 60.0, 300.0, 900.0, 3600.0, 4 * 3600.0, 24 * 3600.0, NONE)
SMALLEST = 0.0001  # share of the distinct blocks
POINTS = 12  # below the capacities at which policies are compared
ABBREVIATIONS = {
    "compulsory": "C",
    "capacity-bound, mild": "m",
    "capacity-bound, heavy": "H",
    "TTL-bound": "T",
}


def tables(
    trace: Trace,
    capacities: Sequence[int] | None = None,
    ttls: Sequence[float] = TTLS,
    window: float = 8 * 3600,
    seeds: Sequence[int] = compare.SEEDS,
) -> Tables:
    """Return what LRU hits and what removes blocks, at every capacity and TTL.

    Parameters
    ----------
    trace : Trace
        The requests.
    capacities : sequence of int, optional
        Blocks; those of `grid` unless given.
    ttls : sequence of float
        Seconds after its last touch a block lives.
    window : float
        Seconds in which sessions start.
    seeds : sequence of int
        Of the session starts; only the first counts where arrivals are recorded.

    Returns
    -------
    dict of DataFrame
        ``cells``, a row a seed, TTL and capacity: hit ratios of LRU with the TTL (`hit_ratio`) and
        without (`lru_ratio`), of the optimum and the infinite cache, the points that the first
        is behind the last (`lost_pp`), the share of removals that the TTL makes, and the regime;
        and ``boundary``, as `kvsim.analysis.boundary.boundary` returns it for each seed.
    """
    sizes = list(capacities or grid(trace.distinct_blocks))
    used = seeds if trace.clock == SESSION else seeds[:1]
    with Meter() as meter:
        progress = meter.task("optimum at capacities and seeds")
        best = run(trace, ["opt"], sizes, window=window, seeds=used, progress=progress)
    opt = best.set_index(["seed", "capacity"])["hit_blocks"] / trace.blocks
    parts = {
        seed: _cells(arrange(trace, window, seed), ttls, sizes, opt[seed].loc[sizes].to_numpy())
        for seed in used
    }
    limits = {seed: boundary(arrange(trace, window, seed), ttls) for seed in used}
    return {"cells": _by_seed(parts), "boundary": _by_seed(limits)}


def _by_seed(parts: dict[int, pd.DataFrame]) -> pd.DataFrame:
    return pd.concat(parts, names=["seed"]).reset_index(0).reset_index(drop=True)


def grid(distinct: int) -> list[int]:
    """Return capacities (blocks): those at which policies are compared, and smaller ones."""
    compared = compare.grid(distinct)
    low = max(1, int(SMALLEST * distinct))
    return sorted({*log_spaced(low, compared[0], POINTS + 1), *compared})


def _cells(trace: Trace, ttls: Sequence[float], sizes: list[int], opt: np.ndarray) -> pd.DataFrame:
    blocks = trace.blocks
    infinite = trace.infinite_hit_blocks / blocks
    lru = flow(trace).hits[sizes] / blocks
    parts = []
    for ttl in ttls:
        limited = flow(trace, ttl)
        hits = limited.hits[sizes] / blocks
        expired, removed = limited.expired[sizes], (limited.expired + limited.evicted)[sizes]
        share = expired / np.where(removed, removed, 1)
        facts: dict[str, Any] = {
            "ttl_s": ttl,
            "capacity": sizes,
            "block_tokens": trace.block_size,
            "hit_ratio": hits.round(6),
            "lru_ratio": lru.round(6),
            "opt_ratio": opt.round(6),
            "infinite_ratio": round(infinite, 6),
            "lost_pp": (100 * (infinite - hits)).round(4),
            "removed_by_ttl_share": share.round(6),
        }
        parts.append(pd.DataFrame(facts))
    return with_regime(pd.concat(parts, ignore_index=True))


def with_regime(cells: pd.DataFrame) -> pd.DataFrame:
    """Return the cells with the regime that the package's rule gives each."""
    inputs = cells[["lru_ratio", "opt_ratio", "infinite_ratio", "removed_by_ttl_share"]]
    return cells.assign(regime=[regimes.regime(*row) for row in inputs.to_numpy().tolist()])


def over_seeds(cells: pd.DataFrame) -> pd.DataFrame:
    """Return the means over seeds, with the regime of the means; `trace` is kept where there is."""
    keys = [name for name in ("trace", "ttl_s", "capacity") if name in cells]
    means = cells.drop(columns=["seed", "regime"]).groupby(keys, sort=False).mean().reset_index()
    return with_regime(means.astype({"block_tokens": int}))


def text(trace: str, tables: Tables) -> str:
    """Return the readable report of one trace."""
    mean = over_seeds(tables["cells"])
    seeds = ", ".join(map(str, tables["cells"]["seed"].unique()))
    lines = [
        f"The regime and the share of removals that the TTL makes; mean of seeds {seeds}:",
        "",
        *(f"{short}  {name}" for name, short in ABBREVIATIONS.items()),
        "",
    ]
    mean["cell"] = [
        f"{ABBREVIATIONS[name]} {100 * share:.0f} %"
        for name, share in zip(mean["regime"], mean["removed_by_ttl_share"], strict=True)
    ]
    mean["limit"] = mean["ttl_s"].map(lambda ttl: "no TTL" if ttl == NONE else f"TTL-{ttl:.0f}")
    wide = mean.pivot(index="capacity", columns="limit", values="cell")
    without = mean[mean["ttl_s"] == NONE].set_index("capacity")
    table = without[["lru_ratio", "opt_ratio"]].join(wide).reset_index()
    named = {"capacity": ("capacity", count), "lru_ratio": ("LRU", percent)}
    named |= {"opt_ratio": ("OPT", percent)}
    return "\n".join(
        [
            *lines,
            lay_out(table, named | {limit: (limit, label) for limit in mean["limit"].unique()}),
            "",
            "Capacity (blocks) from which on a TTL makes a share of the removals; errors of rules:",
            "",
            lay_out(
                with_errors(tables["boundary"]),
                {
                    "seed": ("seed", count),
                    "ttl_s": ("TTL (s)", count),
                    "share": ("share", percent),
                    "capacity": ("capacity", count),
                    **{f"{name}_off": (words, percent) for name, words in PREDICTIONS.items()},
                },
            ),
        ]
    )


def with_errors(limits: pd.DataFrame) -> pd.DataFrame:
    """Return the boundary with how far off each prediction is, as a share of the capacity."""
    capacity = limits["capacity"].astype(float)
    return limits.assign(
        **{f"{name}_off": limits[name].astype(float) / capacity - 1 for name in PREDICTIONS}
    )


def furthest_off(limits: pd.DataFrame) -> pd.DataFrame:
    """Return, by trace and share of removals, the largest error of each prediction, in percent.

    Parameters
    ----------
    limits : DataFrame
        The experiment's table ``boundary``, with a column `trace`.
    """
    off = with_errors(limits)
    names = [f"{name}_off" for name in PREDICTIONS]
    worst = off[names].abs().groupby([off["trace"], off["share"]], sort=False).max()
    worst.columns = pd.Index(PREDICTIONS.values())
    counted = off.groupby(["trace", "share"], sort=False)["capacity"].count()
    return (100 * worst).round(1).assign(boundaries=counted).reset_index()


EXPERIMENT = Experiment(
    9,
    "regimes",
    "What binds at every capacity and TTL",
    tables,
    text,
    applies=lambda trace: trace.blocks > 0,
    part={"weka": {"seeds": [0]}},
)
