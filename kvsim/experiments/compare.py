"""Every policy at every capacity: hit ratio, costs and the headroom that it closes.

Headroom is OPT minus LRU in hit blocks; a policy closes (policy - LRU) / (OPT - LRU)
of it. Intervals come from the seeds of the session starts, and within a seed from a
bootstrap over sessions of the difference to LRU. A trace without sessions is one run
a policy, and has no interval.
"""

import hashlib
import json
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from os import cpu_count
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from kvsim import source_version
from kvsim.analysis.averages import POINT, Coverage, complete, mean_over
from kvsim.analysis.averages import mean_ranks as ranks_of
from kvsim.analysis.worth import worth
from kvsim.cache.capacity import log_spaced
from kvsim.cache.costs import prefill_cost, recompute_cost, saving
from kvsim.cache.curves import lru_curve
from kvsim.cache.policies import LEFT_OUT, POLICIES
from kvsim.cache.result import Result
from kvsim.cache.sweep import simulate
from kvsim.experiments.store import Experiment
from kvsim.report import published
from kvsim.report.results import Tables
from kvsim.report.terminal import Meter
from kvsim.traces.arrivals import arrange
from kvsim.traces.trace import Trace

SEEDS = (0, 1, 2, 3, 4)
POINTS = 12
SMALLEST = 0.005  # share of the distinct blocks
DRAWS = 200
ENGINES = ("vllm", "sglang-lru", "sglang-lfu", "sglang-slru")
ELSEWHERE = ("c", "g", "hg", "cg")  # of the factorial, whose table is the ablation's
RERANK_LIMIT = 200_000  # block accesses; beyond, ranking at every eviction takes minutes a run
TIE_PP = 0.1  # percentage points of hit ratio within which two policies tie
LITTLE = 0.001  # share of hits below which there is no headroom to speak of


def tables(
    trace: Trace,
    policies: Sequence[str] | None = None,
    capacities: Sequence[int] | None = None,
    seeds: Sequence[int] = SEEDS,
    window: float = 8 * 3600,
    draws: int = DRAWS,
    resume: str | None = None,
) -> Tables:
    """Return one row a policy, capacity and seed.

    Parameters
    ----------
    trace : Trace
        The requests.
    policies : sequence of str, optional
        Names; unless given every registered policy but `ELSEWHERE` and, on large traces, those
        that rank anew at every eviction.
    capacities : sequence of int, optional
        Blocks; 12 log-spaced ones from 0.5 % to 100 % of the distinct blocks unless given.
    seeds : sequence of int
        Of the session starts; only the first counts where the trace has no sessions.
    window : float
        Seconds in which sessions start.
    draws : int
        Bootstrap samples of the sessions.
    resume : str, optional
        Folder that keeps what is done, so that an interrupted comparison goes on.
    """
    names = _affordable(trace) if policies is None else list(policies)
    sizes = capacities or grid(trace.distinct_blocks)
    used = seeds if trace.sessions is not None else seeds[:1]
    store = _Store(resume, trace, names, window, draws)
    jobs = [(seed, size) for seed in used for size in sizes]
    left = [job for job in jobs if job not in store.rows]
    arranged = {seed: arrange(trace, window, seed) for seed in {seed for seed, _ in left}}
    with ThreadPoolExecutor(cpu_count()) as pool, Meter() as meter:
        running = {
            pool.submit(_compare, arranged[seed], names, size, seed, draws): (seed, size)
            for seed, size in left
        }
        for done, ready in enumerate(as_completed(running), 1):
            store.keep(running[ready], ready.result())
            meter("capacities and seeds", done, len(left))
    rows = pd.DataFrame([row for job in jobs for row in store.rows[job]])
    order = {name: place for place, name in enumerate(names)}
    rows = rows.sort_values(
        ["policy", "capacity", "seed"],
        key=lambda column: column.map(order) if column.name == "policy" else column,
        kind="stable",
    )
    return {"cells": rows.reset_index(drop=True)}


def grid(distinct: int) -> list[int]:
    """Return the capacities (blocks) at which policies are compared, of that many distinct ones."""
    return log_spaced(max(1, int(SMALLEST * distinct)), distinct, POINTS)


def _affordable(trace: Trace) -> list[str]:
    slow = {name for name, policy in POLICIES.items() if policy.rerank == "eviction"}
    out = {*ELSEWHERE, *(slow if trace.blocks > RERANK_LIMIT else ())}
    return [name for name in POLICIES if name not in out]


class _Store:
    """Rows done so far, by (seed, capacity); in a file if there is a folder."""

    def __init__(self, folder: str | None, trace: Trace, *identity: Any) -> None:
        self.rows: dict[tuple[int, int], list[dict[str, Any]]] = {}
        self._path: Path | None = None
        if folder is None:
            return
        key = [source_version(), _policy_sources(), trace.source_hash, *identity]
        self._path = Path(folder) / f"{trace.name}.jsonl"
        self._path.parent.mkdir(parents=True, exist_ok=True)
        lines = self._path.read_text().splitlines() if self._path.exists() else []
        if lines and json.loads(lines[0]) == key:
            for line in lines[1:]:
                if line.endswith("]"):  # the last may have been cut off
                    seed, capacity, rows = json.loads(line)
                    self.rows[seed, capacity] = rows
        else:
            self._path.write_text(json.dumps(key) + "\n")

    def keep(self, job: tuple[int, int], rows: list[dict[str, Any]]) -> None:
        self.rows[job] = rows
        if self._path:
            with self._path.open("a") as file:
                file.write(json.dumps([*job, rows]) + "\n")


def _policy_sources() -> str:
    digest = hashlib.sha256()
    for path in sorted((Path(__file__).parents[1] / "cache" / "policies").glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _compare(
    trace: Trace, names: Sequence[str], capacity: int, seed: int, draws: int
) -> list[dict[str, Any]]:
    """Return the rows of all policies at one capacity and seed."""
    lru = simulate(trace, "lru", capacity)
    opt = simulate(trace, "opt", capacity)
    base = {cost: cost(trace, lru) for cost in (prefill_cost, recompute_cost)}
    lru_hits = lru_curve(trace)
    resample = _resampler(trace, seed, draws)
    headroom = int(opt.hit_blocks.sum() - lru.hit_blocks.sum())
    rows = []
    for name in ["opt", *names]:
        result = opt if name == "opt" else simulate(trace, name, capacity, seed=seed)
        gain = (result.hit_blocks + result.capped_blocks) - lru.hit_blocks
        low, high = resample(gain)
        row: dict[str, Any] = {
            "policy": name,
            "capacity": capacity,
            "seed": seed,
            "hit_blocks": int(result.hit_blocks.sum()),
            "hit_ratio": _share(result.hit_blocks.sum(), trace.blocks),
            "opt_ratio": _share(opt.hit_blocks.sum(), trace.blocks),
            "gain_pp": _percentage(gain.sum(), trace.blocks),
            "gain_low_pp": _percentage(low, trace.blocks),
            "gain_high_pp": _percentage(high, trace.blocks),
            "headroom_closed": _share(gain.sum(), headroom),
            "prefill_saving": _cost(trace, result, prefill_cost, base),
            "recompute_saving": _cost(trace, result, recompute_cost, base),
            "worth": round(worth(lru_hits, int(lru.hit_blocks.sum() + gain.sum()), capacity), 4),
        }
        rows.append(row)
    return rows


def _cost(
    trace: Trace,
    result: Result,
    cost: Callable[[Trace, Result], np.ndarray],
    base: dict[Any, np.ndarray],
) -> float | None:
    saved = saving(cost(trace, result), base[cost])
    return None if saved is None else round(saved, 4)


def _resampler(
    trace: Trace, seed: int, draws: int
) -> Callable[[np.ndarray], tuple[float | None, float | None]]:
    """Return a function that gives the 95 % interval of a sum over requests, sessions redrawn."""
    if trace.sessions is None or draws == 0:
        return lambda gain: (None, None)
    owner, sessions = trace.session, int(trace.session.max()) + 1
    present = np.bincount(owner, minlength=sessions) > 0
    count = int(present.sum())
    generator = np.random.default_rng([seed, count])
    weights = generator.multinomial(count, np.full(count, 1 / count), size=draws)

    def interval(gain: np.ndarray) -> tuple[float, float]:
        by_session = np.bincount(owner, weights=gain, minlength=sessions)[present]
        low, high = np.quantile(weights @ by_session, [0.025, 0.975])
        return float(low), float(high)

    return interval


def _share(part: float, whole: float) -> float | None:
    return round(float(part) / float(whole), 6) if whole else None


def _percentage(part: float | None, whole: int) -> float | None:
    return None if part is None or not whole else round(100 * float(part) / whole, 4)


def text(trace: str, tables: Tables) -> str:
    """Return the readable report of one trace."""
    cells = tables["cells"]
    return "\n".join(
        [
            "Hit ratio (blocks), mean over seeds, by capacity in blocks:",
            "",
            wide(cells, "hit_ratio").to_string(),
            "",
            "Share of the headroom OPT - LRU closed (negative: behind LRU), mean over seeds:",
            "",
            wide(cells, "headroom_closed").to_string(),
            "",
            "Prefill cost saved against LRU, mean over seeds:",
            "",
            wide(cells, "prefill_saving").to_string(),
            "",
            "Times the memory that LRU would need for the same hits (worth), mean over seeds:",
            "",
            wide(cells, "worth").to_string(),
            "",
            "Against LRU, capacities won / tied / lost by the mean over seeds (a tie is within",
            f"{TIE_PP:g} percentage points); worst and best of single runs:",
            "",
            against_lru(cells).to_string(),
        ]
    )


def wide(cells: pd.DataFrame, value: str) -> pd.DataFrame:
    """Return the mean over seeds with a row a policy and a column a capacity, best first."""
    table = mean_over(cells, [value], by=("policy", "capacity"))[value].unstack("capacity")
    ranking = mean_over(cells, ["hit_ratio"])["hit_ratio"].sort_values(ascending=False)
    return table.reindex(ranking.index).round(4)


def against_lru(cells: pd.DataFrame, tie_pp: float = TIE_PP) -> pd.DataFrame:
    """Return at how many points each policy wins, ties and loses against LRU, and its mean gain.

    A point is a trace and capacity, its gain the mean over seeds. The mean gain is over seeds, then
    capacities, then traces; the worst and best are of single runs.

    Parameters
    ----------
    cells : DataFrame
        As `tables` gives it, with a column `trace` where there are several.
    tie_pp : float
        Percentage points of hit ratio within which two policies tie.
    """
    rows = cells[~cells["policy"].isin(["lru", "opt", "infinite"])]
    named = rows if "trace" in rows else rows.assign(trace="")
    points = mean_over(named, ["gain_pp"], by=("policy", *POINT))["gain_pp"]
    runs = named.groupby("policy")["gain_pp"]
    marked = {"won": points > tie_pp, "tied": points.abs() <= tie_pp, "lost": points < -tie_pp}
    table = pd.DataFrame(
        {
            **{name: found.groupby("policy").sum() for name, found in marked.items()},
            "points": points.groupby("policy").size(),
            "mean_gain_pp": mean_over(named, ["gain_pp"])["gain_pp"],
            "worst_pp": runs.min(),
            "best_pp": runs.max(),
        }
    )
    return table.sort_values("mean_gain_pp", ascending=False).round(3)


def catalogue() -> pd.DataFrame:
    """Return every registered policy: name, rule, source and needs."""
    rows = [
        {
            "policy": name,
            "rule": policy.summary,
            "source": policy.source,
            "needs": ", ".join(policy.needs),
        }
        for name, policy in POLICIES.items()
    ]
    return pd.DataFrame(rows).set_index("policy")


def left_out() -> pd.DataFrame:
    """Return the published rules that are not here, with the reason."""
    return pd.Series(LEFT_OUT, name="left out, because").to_frame()


def knows_future(name: str) -> bool:
    """Return whether a policy needs what no running server can know."""
    return any(need.startswith("future") for need in POLICIES[name].needs)


def online(cells: pd.DataFrame) -> pd.DataFrame:
    """Return the cells of policies that need no future, LRU and bounds aside."""
    known = {name for name in POLICIES if not knows_future(name)}
    return cells[cells["policy"].isin(known - {"lru"})]


def leaders(cells: pd.DataFrame, count: int = 5) -> pd.DataFrame:
    """Return the mean headroom closed by the best online policies, LFU and Belady.

    A row a trace, policy and capacity; capacities with little headroom are left out.
    """
    names = [*best_online(cells)[:count], "lfu", "belady"]
    rows = cells[cells["policy"].isin(names)]
    rows = rows[rows["opt_ratio"] - rows["hit_ratio"] + rows["gain_pp"] / 100 > LITTLE]
    order = {name: place for place, name in enumerate(names)}
    by = ("trace", "policy", "capacity")
    mean = mean_over(rows, ["headroom_closed"], by=by).reset_index()
    return mean.sort_values(
        ["trace", "policy"], key=lambda c: c.map(order) if c.name == "policy" else c
    )


def best_online(cells: pd.DataFrame) -> list[str]:
    """Return the online policies that ran everywhere, the highest mean gain first."""
    kept, _ = complete(online(cells))
    return list(map(str, against_lru(kept).index))


def headline(cells: pd.DataFrame) -> dict[str, object]:
    """Return the numbers that the chapters' prose names, from the policies that ran everywhere."""
    kept, coverage = complete(online(cells))
    table = against_lru(kept)
    unharmed = table[table["worst_pp"] >= -TIE_PP]
    best = str(table.index[0])
    own = mean_over(kept[kept["policy"] == best], ["gain_pp"], by=("trace",))["gain_pp"]
    bound = mean_over(cells[cells["policy"] == "opt"], ["gain_pp"], by=POINT)["gain_pp"]
    return {
        "online": len(table),
        "never_behind_names": ", ".join(map(str, unharmed.index)) or "none",
        "tie": f"{TIE_PP:g}",
        "lose_more": int((table["lost"] > table["won"]).sum()),
        "best_online": best,
        "best_gain": f"{table['mean_gain_pp'].iloc[0]:.2f}",
        "best_gain_by_trace": ", ".join(
            f"{round(gain, 2) + 0.0:+.2f} ({name})"  # adding 0 turns -0.0 into 0.0
            for name, gain in own.items()
        ),
        "best_won": int(table["won"].iloc[0]),
        "best_tied": int(table["tied"].iloc[0]),
        "next_online": str(table.index[1]) if len(table) > 1 else "none",
        "next_gain": f"{table['mean_gain_pp'].iloc[min(1, len(table) - 1)]:.2f}",
        "points": coverage.points,
        "traces": coverage.traces,
        "capacities": int(bound.groupby("trace").size().max()),
        "random_limit": f"{RERANK_LIMIT:,}",
    }


def point_words() -> dict[str, str]:
    """Return where the capacities begin, and what is too little headroom to be drawn."""
    return {"smallest": f"{100 * SMALLEST:g} %", "little": f"{100 * LITTLE:g}"}


def worth_by_capacity(cells: pd.DataFrame, trace: str, policies: Sequence[str]) -> pd.DataFrame:
    """Return how many times the memory LRU would need for the same hits, mean over seeds.

    A row a capacity, a column a policy.
    """
    rows = cells[(cells["trace"] == trace) & cells["policy"].isin(policies)]
    table = mean_over(rows, ["worth"], by=("capacity", "policy"))["worth"].unstack("policy")
    return table[[name for name in policies if name in table]].round(2)


def worth_range(cells: pd.DataFrame, policies: Sequence[str]) -> pd.DataFrame:
    """Return the least and most memory that LRU would need for the same hits, by trace.

    Of the means over seeds at each capacity; columns `least`, `most`, and `at`, the capacity
    (blocks) of the most.
    """
    rows = cells[cells["policy"].isin(policies)]
    points = mean_over(rows, ["worth"], by=("policy", *POINT))["worth"]
    groups = points.groupby(["policy", "trace"])
    most = groups.idxmax().map(lambda point: point[2])
    table = pd.DataFrame({"least": groups.min(), "most": groups.max(), "at": most})
    return table.round(2)


def against_lru_by_trace(cells: pd.DataFrame) -> pd.DataFrame:
    """Return `against_lru` over all traces, with the mean gain on each and who knows the future."""
    table = against_lru(cells)
    by_trace = mean_over(cells, ["gain_pp"], by=("policy", "trace"))["gain_pp"].unstack("trace")
    table["knows the future"] = ["yes" if knows_future(name) else "" for name in table.index]
    return table.join(by_trace.round(2).add_prefix("mean gain, "))


@dataclass(frozen=True)
class Ranks:
    """Mean ranks, and what they count.

    Attributes
    ----------
    table : DataFrame
        Index `policy`; the mean rank, and whether it is within Nemenyi's critical difference
        (5 %) of the first.
    coverage : Coverage
        Points, traces and seeds counted, and who is left out.
    difference : float
        Nemenyi's.
    """

    table: pd.DataFrame
    coverage: Coverage
    difference: float


def mean_ranks(cells: pd.DataFrame) -> Ranks:
    """Return the mean rank of each online policy and LRU over points, 1 the best.

    The points of one trace are not independent, so read it as a summary.
    """
    fair = pd.concat([online(cells), cells[cells["policy"] == "lru"]])
    kept, coverage = complete(fair)
    mean, difference = ranks_of(kept, "hit_ratio")
    table = mean.round(2).to_frame("mean rank")
    near = mean - mean.iloc[0] <= difference
    table["not told apart from the first"] = np.where(near, "yes", "")
    return Ranks(table, coverage, round(difference, 2))


def rank_words(ranks: Ranks) -> dict[str, object]:
    """Return what the prose says of the ranks."""
    places = list(ranks.table.index)
    near = int((ranks.table["not told apart from the first"] == "yes").sum())
    return {
        "ranked": ranks.coverage.words(),
        "rank_first": str(places[0]),
        "rank_lru": f"{ranks.table['mean rank']['lru']:.1f}",
        "rank_place_lru": places.index("lru") + 1,
        "rank_near": near,
        "rank_policies": len(places),
        "rank_difference": f"{ranks.difference:.1f}",
    }


def intervals(cells: pd.DataFrame, trace: str) -> pd.DataFrame:
    """Return the gain over LRU in points: mean, range over seeds, widest bootstrap interval.

    The bootstrap draws sessions anew within a seed.
    """
    rows = online(cells[cells["trace"] == trace])
    return (
        rows.groupby(["capacity", "policy"])
        .agg(
            gain_pp=("gain_pp", "mean"),
            seeds_low=("gain_pp", "min"),
            seeds_high=("gain_pp", "max"),
            sessions_low=("gain_low_pp", "min"),
            sessions_high=("gain_high_pp", "max"),
        )
        .round(2)
        .sort_values(["capacity", "gain_pp"], ascending=[True, False])
    )


def claims(cells: pd.DataFrame) -> pd.DataFrame:
    """Return what papers claim beside the range of gains that we find."""
    rows = []
    for name, claim in published.CLAIMS.items():
        found = cells[cells["policy"] == name]
        if len(found):
            gains = found.groupby("trace")["gain_pp"].agg(["min", "max"]).round(1)
            shown = "; ".join(
                f"{t}: {r['min']:+.1f} to {r['max']:+.1f}" for t, r in gains.iterrows()
            )
            rows.append({"policy": name, "claim": claim, "our gain over LRU (pp)": shown})
    return pd.DataFrame(rows).set_index("policy")


def engines(cells: pd.DataFrame) -> pd.DataFrame:
    """Return what engines' own rules gain or lose against leaf LRU, in percentage points."""
    rows = cells[cells["policy"].isin(ENGINES)]
    place = rows.groupby("trace")["capacity"].rank(method="dense").astype(int)
    means = mean_over(rows.assign(point=place), ["gain_pp"], by=("trace", "policy", "point"))
    return means["gain_pp"].unstack("point").round(3)


EXPERIMENT = Experiment(
    7,
    "compare",
    "Every policy beside LRU and the optimum",
    tables,
    text,
    part={
        "weka": {"seeds": [0], "capacities": [177_593]},
        "sample": {"seeds": [0], "capacities": [2_859, 12_127]},
        "conversation": {"capacities": [2_393]},
    },
    resumable=True,
)
