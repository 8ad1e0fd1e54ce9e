"""TTL over LRU: whether it is LRU, cell by cell, and the capacity from which it binds."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd

from kvsim.cache.capacity import log_spaced, parse
from kvsim.cache.expiry import Flow, fires_from, flow, hits_differ_from
from kvsim.experiments.plain import NO_DATA, count, fine_percent, label, lay_out, percent
from kvsim.experiments.store import Experiment
from kvsim.report.results import Tables
from kvsim.traces.arrivals import arrange
from kvsim.traces.trace import Trace

TTLS = (60.0, 300.0, 3600.0)  # seconds
STUDY_CAPACITIES = ("8k", "20k", "50k")
POINTS = 25
SEEDS = (0, 1, 2, 3, 4)
SAMPLE_WINDOWS = (0.0, 8 * 3600.0)  # seconds: all sessions at once, and spread out
ALL = "all sessions"
VISIBLE = 0.5e-4  # a hit ratio lower by this differs in a table of percents with two decimals


def tables(
    trace: Trace,
    window: float = 8 * 3600,
    seed: int = 0,
    ttls: Sequence[float] = TTLS,
    capacities: Sequence[str | int] = STUDY_CAPACITIES,
    points: int = POINTS,
    sample: int = 40,
    seeds: Sequence[int] = SEEDS,
    sample_windows: Sequence[float] = SAMPLE_WINDOWS,
) -> Tables:
    """Return what each TTL changes under LRU.

    Parameters
    ----------
    trace : Trace
        The requests.
    window, seed : float, int
        Seconds and seed of the session starts, where the trace has sessions.
    ttls : sequence of float
        Seconds.
    capacities : sequence of str or int
        As `kvsim.cache.capacity.parse` takes them, beside `points` log-spaced ones.
    points : int
        Log-spaced capacities from 100 blocks to all distinct ones.
    sample : int
        Sessions of the smaller samples, as in the study.
    seeds : sequence of int
        Of the samples and of their starts.
    sample_windows : sequence of float
        Seconds in which the sessions of a sample start: the shorter, the heavier the load.

    Returns
    -------
    dict of DataFrame
        ``cells`` (a row a sample, TTL and capacity) and ``thresholds`` (a row a sample and TTL; the
        capacities, in blocks, from which the TTL does something).
    """
    cells, thresholds = [], []
    grid = [(one_window, one_seed) for one_window in sample_windows for one_seed in seeds]
    for arrangement, arranged in _arrangements(trace, window, seed, sample, grid):
        chosen = {parse(str(size), arranged) for size in capacities}
        chosen |= {*log_spaced(100, arranged.distinct_blocks, points), arranged.distinct_blocks}
        sizes = np.array(sorted(size for size in chosen if size <= arranged.distinct_blocks))
        without = flow(arranged)
        for ttl in ttls:
            with_ttl = flow(arranged, ttl)
            facts = arrangement | {"ttl_s": ttl}
            cells.append(pd.DataFrame(facts | _cells(arranged, without, with_ttl, sizes)))
            thresholds.append(facts | _thresholds(arranged, without, with_ttl))
    return {
        "cells": pd.concat(cells, ignore_index=True),
        "thresholds": pd.DataFrame(thresholds).astype(
            {name: "Int64" for name in thresholds[0] if name.endswith("_from")}
        ),
    }


def _arrangements(
    trace: Trace, window: float, seed: int, sample: int, grid: Sequence[tuple[float, int]]
) -> Iterator[tuple[dict[str, Any], Trace]]:
    """Yield how it was made, and the trace: the whole one, then samples of its sessions."""
    whole = {"sample": ALL, "window_s": np.nan if trace.sessions is None else window, "seed": seed}
    yield whole, arrange(trace, window, seed)
    if trace.sessions is not None and trace.sessions > sample:
        for short, one in grid:
            made = {"sample": f"{sample} sessions", "window_s": short, "seed": one}
            yield made, arrange(trace, short, one, sample)


def _cells(trace: Trace, without: Flow, with_ttl: Flow, sizes: np.ndarray) -> dict[str, Any]:
    blocks = trace.blocks or np.nan
    expired, evicted = with_ttl.expired[sizes], with_ttl.evicted[sizes]
    removed = expired + evicted
    return {
        "capacity": sizes,
        "lru_hit_ratio": (without.hits[sizes] / blocks).round(6),
        "ttl_hit_ratio": (with_ttl.hits[sizes] / blocks).round(6),
        "lost_hit_blocks": without.hits[sizes] - with_ttl.hits[sizes],
        "expired_blocks": expired,
        "evicted_blocks": evicted,
        "lru_evicted_blocks": without.evicted[sizes],
        "removed_by_ttl_share": (expired / np.where(removed, removed, np.nan)).round(6),
        "same_hits": without.hits[sizes] == with_ttl.hits[sizes],
        "never_fires": expired == 0,
    }


def _thresholds(trace: Trace, without: Flow, with_ttl: Flow) -> dict[str, int | float | None]:
    """Return the capacities (blocks) from which the TTL does something, None if at none."""
    lost = (without.hits - with_ttl.hits) / (trace.blocks or np.nan)
    expired, evicted = with_ttl.expired, with_ttl.evicted
    fires = expired > 0
    return {
        "distinct_blocks": trace.distinct_blocks,
        # A silence beyond the TTL empties a cache of any capacity.
        "longest_silence_s": round(float(np.diff(trace.arrival).max(initial=0.0)), 3),
        "fires_from": fires_from(with_ttl),
        "hits_differ_from": hits_differ_from(with_ttl, without),
        "visible_from": _onward(lost >= VISIBLE),
        "removes_1_percent_from": _onward(fires & (99 * expired >= evicted)),
        "removes_half_from": _onward(fires & (expired >= evicted)),
        "removes_all_from": _onward(fires & (evicted == 0)),
        "lost_at_most": round(float(lost.max(initial=0.0)), 6),
    }


def _onward(true: np.ndarray) -> int | None:
    """Return the capacity from which on all are true."""
    last_false = int(np.max(np.flatnonzero(~true), initial=-1))
    return last_false + 1 if last_false + 1 < len(true) else None


def text(trace: str, tables: Tables) -> str:
    """Return the readable report of one trace."""
    cells, thresholds = tables["cells"], tables["thresholds"]
    lines = [verdict(cells), "", "From which capacity (blocks) on a TTL does something:", ""]
    lines += [
        lay_out(
            thresholds,
            {
                "sample": ("sample", label),
                "window_s": ("window (s)", count),
                "seed": ("seed", count),
                "ttl_s": ("TTL (s)", count),
                "distinct_blocks": ("distinct", count),
                "longest_silence_s": ("silence (s)", count),
                "fires_from": ("removes a block", _from),
                "hits_differ_from": ("costs a hit", _from),
                "visible_from": ("costs 0.005 %", _from),
                "removes_1_percent_from": ("makes 1 % of removals", _from),
                "removes_half_from": ("makes half", _from),
                "removes_all_from": ("makes all", _from),
                "lost_at_most": ("hit ratio lost at most", fine_percent),
            },
        ),
        "",
    ]
    whole = cells[cells["sample"] == ALL]
    for ttl, part in whole.groupby("ttl_s"):
        lines += [f"LRU with TTL-{ttl:.0f} beside LRU:", "", _cells_text(part), ""]
    return "\n".join(lines)


def _cells_text(cells: pd.DataFrame) -> str:
    return lay_out(
        cells,
        {
            "capacity": ("capacity", count),
            "lru_hit_ratio": ("LRU", fine_percent),
            "ttl_hit_ratio": ("with TTL", fine_percent),
            "lost_hit_blocks": ("hits lost", count),
            "expired_blocks": ("expired", count),
            "evicted_blocks": ("evicted", count),
            "removed_by_ttl_share": ("removed by TTL", percent),
        },
    )


def verdict(cells: pd.DataFrame) -> str:
    """Return, for each TTL, in how many cells it has LRU's hits, and in how many it never fires."""
    lines = []
    columns = ["sample", "window_s", "ttl_s"]
    groups: Any = cells.groupby(columns, sort=False, dropna=False)
    for (sample, window, ttl), part in groups:
        printed = (part["lru_hit_ratio"] - part["ttl_hit_ratio"]) < VISIBLE
        starts = "" if pd.isna(window) else f" starting within {window:,.0f} s"
        same, silent = part["same_hits"].sum(), part["never_fires"].sum()
        lines.append(
            f"TTL-{ttl:.0f}, {sample}{starts}: of {len(part)} cells {same} have the hits of LRU "
            f"({printed.sum()} to two decimals of a percent); in {silent} the TTL never fires"
        )
    return "\n".join(lines)


def verdicts(cells: pd.DataFrame) -> pd.DataFrame:
    """Return, for each trace, sample and TTL, how many cells keep LRU's hits or never fire."""
    table = cells.assign(lost=cells["lru_hit_ratio"] - cells["ttl_hit_ratio"])
    groups = table.groupby(["trace", "sample", "window_s", "ttl_s"], sort=False, dropna=False)
    return groups.agg(
        cells=("capacity", "size"),
        same_hits=("same_hits", "sum"),
        never_fires=("never_fires", "sum"),
        hit_ratio_lost_at_most=("lost", "max"),
    ).round(4)


def whole(cells: pd.DataFrame, trace: str) -> pd.DataFrame:
    """Return the cells of a whole trace."""
    return cells[(cells["trace"] == trace) & (cells["sample"] == ALL)]


def headline(cells: pd.DataFrame, ttl: float = 300) -> dict[str, object]:
    """Return the counts that the prose names, of whole traces at one TTL."""
    numbers: dict[str, object] = {}
    for trace in cells["trace"].unique():
        part = whole(cells, trace)
        part = part[part["ttl_s"] == ttl]
        numbers[f"{trace}_cells"] = len(part)
        numbers[f"{trace}_same"] = int(part["same_hits"].sum())
        numbers[f"{trace}_differs"] = len(part) - int(part["same_hits"].sum())
        numbers[f"{trace}_silent"] = int(part["never_fires"].sum())
    return numbers


def half_to_all(thresholds: pd.DataFrame) -> dict[str, str]:
    """Return by what factor of capacity, at most, a TTL goes from half of the removals to all."""
    rows = thresholds[thresholds["sample"] == ALL]
    factor = (rows["removes_all_from"] / rows["removes_half_from"]).max()
    return {"half_to_all": f"{factor:.1f}"}


def thresholds_by_trace(thresholds: pd.DataFrame) -> pd.DataFrame:
    """Return the capacities from which a TTL does something, of whole traces; None is never."""
    rows = thresholds[thresholds["sample"] == ALL]
    columns = ["fires_from", "hits_differ_from", "removes_half_from", "removes_all_from"]
    table = rows.set_index(["trace", "ttl_s"])[["distinct_blocks", *columns]].map(_from)
    return table.rename(columns=lambda name: name.removesuffix("_from"))


def _from(value: float) -> str:
    text = count(value)
    return "never" if text == NO_DATA else text


EXPERIMENT = Experiment(
    5, "ttl", "TTL over LRU: which of the two limits removes blocks", tables, text
)
