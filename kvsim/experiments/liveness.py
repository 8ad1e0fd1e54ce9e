"""Liveness beside LRU and OPT at many capacities.

Is it ever behind, and what does it close?

The goal that it was built to: from 1 % to 100 % of the distinct blocks never more than
0.1 percentage points behind LRU, and 30 % of the headroom closed wherever LRU hits less
than half of what OPT does.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd

from kvsim.cache.capacity import log_spaced
from kvsim.cache.curves import lru_curve
from kvsim.cache.sweep import run
from kvsim.experiments.store import Experiment, Tables
from kvsim.report.terminal import Meter
from kvsim.traces.arrivals import arrange
from kvsim.traces.trace import Trace

SHARES = (
    0.001,
    0.01,
    1.0,
)  # of the distinct blocks: from where we look, where the goal begins and ends
POINTS = (12, 48)
BEHIND_PP = 0.1  # percentage points of hit ratio
CLOSED = 0.3


def tables(
    trace: Trace,
    policy: str = "liveness",
    seeds: Sequence[int] = (0, 1, 2, 3, 4),
    window: float = 8 * 3600,
    shares: Sequence[float] = SHARES,
    points: Sequence[int] = POINTS,
) -> Tables:
    """Return one row a seed and capacity.

    Parameters
    ----------
    trace : Trace
        The requests.
    policy : str
        What to set beside LRU and OPT.
    seeds : sequence of int
        Of the session starts; only the first counts where the trace has no sessions.
    window : float
        Seconds in which sessions start.
    shares : sequence of float
        Of the distinct blocks: ends of the stretches of capacities, ascending.
    points : sequence of int
        Log-spaced capacities a stretch, both ends included.
    """
    ends = [max(1, int(share * trace.distinct_blocks)) for share in shares]
    stretches = zip(pairwise(ends), points, strict=True)
    sizes = sorted(
        {size for (low, high), count in stretches for size in log_spaced(low, high, count)}
    )
    used = seeds if trace.sessions is not None else seeds[:1]
    with Meter() as meter:
        runs = run(
            trace,
            [policy, "opt"],
            sizes,
            window=window,
            seeds=used,
            progress=meter.task("capacities and seeds"),
        )
    hits = runs.set_index(["policy", "seed", "capacity"])["hit_blocks"]
    lru = {seed: lru_curve(arrange(trace, window, seed)) for seed in used}
    rows = [
        {
            "seed": seed,
            "capacity": size,
            **_beside(
                trace.blocks,
                int(lru[seed][size]),
                hits[policy, seed, size],
                hits["opt", seed, size],
            ),
        }
        for seed in used
        for size in sizes
    ]
    cells = pd.DataFrame(rows)
    cells["in_goal"] = cells["capacity"] >= ends[1]
    return {"cells": cells}


def _beside(blocks: int, lru: int, hits: int, best: int) -> dict[str, float]:
    ratios = {"lru": lru, "policy": hits, "opt": best}
    return {
        **{f"{name}_ratio": round(value / blocks, 6) for name, value in ratios.items()},
        "gain_pp": round(100 * (hits - lru) / blocks, 4),
        "headroom_closed": round((hits - lru) / (best - lru), 4) if best > lru else np.nan,
    }


def goals(cells: pd.DataFrame) -> pd.DataFrame:
    """Return a row a trace: the worst gain in the goal's range, and what is closed under pressure.

    Pressure is where LRU hits less than half of what OPT does.
    """
    rows = []
    for trace, own in cells.groupby("trace"):
        inside = own[own["in_goal"]]
        worst = inside.sort_values("gain_pp").iloc[0]
        row: dict[str, Any] = {
            "trace": trace,
            "cells": len(inside),
            "worst gain, pp": worst["gain_pp"],
            "at blocks": int(worst["capacity"]),
            "behind by more than 0.1 pp": int((inside["gain_pp"] < -BEHIND_PP).sum()),
            "best gain, pp": inside["gain_pp"].max(),
        }
        for name, part in (("from 1 %", inside), ("below 1 %", own.drop(inside.index))):
            pressed = part[part["lru_ratio"] < part["opt_ratio"] / 2]
            row[f"pressed cells {name}"] = len(pressed)
            row[f"of them 30 % closed {name}"] = int((pressed["headroom_closed"] >= CLOSED).sum())
        rows.append(row)
    return pd.DataFrame(rows).set_index("trace").astype(object)


def by_capacity(cells: pd.DataFrame) -> pd.DataFrame:
    """Return the means over seeds, a row a trace and capacity."""
    mean = cells.groupby(["trace", "capacity"]).agg(
        lru=("lru_ratio", "mean"),
        liveness=("policy_ratio", "mean"),
        opt=("opt_ratio", "mean"),
        gain_pp=("gain_pp", "mean"),
        worst_gain_pp=("gain_pp", "min"),
        closed=("headroom_closed", "mean"),
    )
    return mean.round(4)


def text(trace: str, tables: Tables) -> str:
    """Return the readable report of one trace."""
    cells = tables["cells"].assign(trace=trace)
    return "\n".join([goals(cells).T.to_string(), "", by_capacity(cells).loc[trace].to_string()])


EXPERIMENT = Experiment(
    8,
    "liveness",
    "Liveness beside LRU and the optimum at many capacities",
    tables,
    text,
    part={"weka": {"seeds": [0], "points": (2, 2)}},
)
