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

from kvsim.analysis.averages import mean_over
from kvsim.analysis.worth import worth
from kvsim.cache.capacity import log_spaced
from kvsim.cache.curves import lru_curve
from kvsim.cache.sweep import run
from kvsim.experiments.store import Experiment
from kvsim.report.results import Tables
from kvsim.report.terminal import Meter
from kvsim.traces.arrivals import arrange
from kvsim.traces.trace import Trace

SHARES = (
    0.001,
    0.01,
    1.0,
)  # of the distinct blocks: from where we look, where the goal begins and ends
POINTS = (12, 48)
RATIOS = ("lru_ratio", "policy_ratio", "opt_ratio")
SHOWN = {"lru_ratio": "lru", "policy_ratio": "liveness", "opt_ratio": "opt"} | {
    "headroom_closed": "closed"
}
PRESSED = 0.5  # of OPT's hits: below it LRU is under pressure
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
    rows = []
    for seed in used:
        for size in sizes:
            ours, best = hits[policy, seed, size], hits["opt", seed, size]
            rows.append(
                {
                    "seed": seed,
                    "capacity": size,
                    **_beside(trace.blocks, int(lru[seed][size]), ours, best),
                    "in_goal": size >= ends[1],
                    "worth": round(worth(lru[seed], ours, size), 4),
                    "opt_worth": round(worth(lru[seed], best, size), 4),
                }
            )
    return {"cells": pd.DataFrame(rows)}


def _beside(blocks: int, lru: int, hits: int, best: int) -> dict[str, float]:
    ratios = {"lru": lru, "policy": hits, "opt": best}
    return {
        **{f"{name}_ratio": round(value / blocks, 6) for name, value in ratios.items()},
        "gain_pp": round(100 * (hits - lru) / blocks, 4),
        "headroom_closed": round((hits - lru) / (best - lru), 4) if best > lru else np.nan,
    }


def goals(cells: pd.DataFrame) -> pd.DataFrame:
    """Return a row a trace: the worst gain in the goal's range, and what is closed under pressure.

    Runs are judged singly where the goal says never; what is closed is counted by capacities, of
    the means over seeds. A capacity is pressed where LRU hits less than `PRESSED` of what OPT does.
    """
    rows = []
    for trace, own in cells.groupby("trace"):
        inside = own[own["in_goal"]]
        worst = inside.sort_values("gain_pp").iloc[0]
        row: dict[str, Any] = {
            "trace": trace,
            "capacities": inside["capacity"].nunique(),
            "seeds": inside["seed"].nunique(),
            "worst gain, pp": worst["gain_pp"],
            "at blocks": int(worst["capacity"]),
            f"runs behind by more than {BEHIND_PP:g} pp": int(
                (inside["gain_pp"] < -BEHIND_PP).sum()
            ),
            "best gain, pp": inside["gain_pp"].max(),
        }
        means = mean_over(own, [*RATIOS, "in_goal", "headroom_closed"], by=("capacity",))
        begins = f"{100 * SHARES[1]:g} %"
        for name, part in (
            (f"from {begins}", means[means["in_goal"] == 1]),
            (f"below {begins}", means[means["in_goal"] == 0]),
        ):
            tight = part[pressed(part)]
            row[f"pressed capacities {name}"] = len(tight)
            row[f"of them {100 * CLOSED:g} % closed {name}"] = int(
                (tight["headroom_closed"] >= CLOSED).sum()
            )
        rows.append(row)
    return pd.DataFrame(rows).set_index("trace").astype(object)


def pressed(cells: pd.DataFrame) -> pd.Series:
    """Return where LRU is under pressure, as the goal has it."""
    return cells["lru_ratio"] < PRESSED * cells["opt_ratio"]


def goal_words(cells: pd.DataFrame) -> dict[str, object]:
    """Return the goal, and on which traces and at how many pressed capacities it is met."""
    means = mean_over(cells, [*RATIOS, "headroom_closed"], by=("trace", "capacity"))
    tight = means[pressed(means)]
    met = (tight["headroom_closed"] >= CLOSED).groupby("trace").agg(["sum", "size"])
    told = ", ".join(f"{one} of {many} ({trace})" for trace, one, many in met.itertuples())
    behind = cells[cells["in_goal"] & (cells["gain_pp"] < -BEHIND_PP)]
    largest = tight.reset_index().groupby("trace")["capacity"].max()
    return {
        "goal_from": f"{100 * SHARES[1]:g} %",
        "goal_to": f"{100 * SHARES[2]:g} %",
        "goal_behind": f"{BEHIND_PP:g}",
        "goal_closed": f"{100 * CLOSED:g} %",
        "goal_met": told or "no pressed capacity",
        "goal_runs_behind": len(behind),
        **{f"{trace}_pressed_to": f"{size:,}" for trace, size in largest.items()},
    }


def by_capacity(cells: pd.DataFrame) -> pd.DataFrame:
    """Return the means over seeds, a row a trace and capacity; the worst gain is of one run."""
    values = [*RATIOS, "gain_pp", "headroom_closed", "worth", "opt_worth"]
    mean = mean_over(cells, values, by=("trace", "capacity"))
    mean["worst_gain_pp"] = cells.groupby(["trace", "capacity"])["gain_pp"].min()
    shown = [*RATIOS, "gain_pp", "worst_gain_pp", "headroom_closed", "worth", "opt_worth"]
    return mean[shown].rename(columns=SHOWN).round(4)


def under_pressure(cells: pd.DataFrame, trace: str) -> pd.DataFrame:
    """Return `by_capacity` where LRU is under pressure by the mean over seeds, of one trace."""
    table = by_capacity(cells[cells["trace"] == trace]).droplevel("trace")
    return table[table["lru"] < PRESSED * table["opt"]]


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
