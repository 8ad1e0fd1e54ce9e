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
from os import cpu_count
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import studentized_range

from kvsim import source_version
from kvsim.cache.capacity import log_spaced
from kvsim.cache.costs import prefill_cost, recompute_cost, saving
from kvsim.cache.policies import LEFT_OUT, POLICIES
from kvsim.cache.result import Result
from kvsim.cache.sweep import simulate
from kvsim.experiments.store import Experiment, Tables
from kvsim.report import published
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
    low = max(1, int(SMALLEST * trace.distinct_blocks))
    sizes = capacities or log_spaced(low, trace.distinct_blocks, POINTS)
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
            "Against LRU, cells won / tied / lost (tie: within 0.1 percentage points):",
            "",
            against_lru(cells).to_string(),
        ]
    )


def wide(cells: pd.DataFrame, value: str) -> pd.DataFrame:
    """Return the mean over seeds with a row a policy and a column a capacity, best first."""
    table = cells.pivot_table(index="policy", columns="capacity", values=value)
    ranking = cells.groupby("policy")["hit_ratio"].mean().sort_values(ascending=False)
    return table.reindex(ranking.index).round(4)


def against_lru(cells: pd.DataFrame, tie_pp: float = 0.1) -> pd.DataFrame:
    """Return how many cells each policy wins, ties and loses against LRU, and its mean gain.

    Parameters
    ----------
    cells : DataFrame
        As `tables` gives it.
    tie_pp : float
        Percentage points of hit ratio within which two policies tie.
    """
    rows = cells[~cells["policy"].isin(["lru", "opt", "infinite"])]
    marked = rows.assign(
        won=rows["gain_pp"] > tie_pp,
        tied=rows["gain_pp"].abs() <= tie_pp,
        lost=rows["gain_pp"] < -tie_pp,
    )
    table = marked.groupby("policy").agg(
        won=("won", "sum"),
        tied=("tied", "sum"),
        lost=("lost", "sum"),
        mean_gain_pp=("gain_pp", "mean"),
        worst_pp=("gain_pp", "min"),
        best_pp=("gain_pp", "max"),
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
    """Return the mean headroom closed by the best online policies, LFU, FIFO and Belady.

    A row a trace, policy and capacity; capacities with little headroom are left out.
    """
    gains = online(cells).groupby("policy")["gain_pp"].mean().sort_values(ascending=False)
    names = [*gains.head(count).index, "lfu", "belady"]
    rows = cells[cells["policy"].isin(names)]
    rows = rows[rows["opt_ratio"] - rows["hit_ratio"] + rows["gain_pp"] / 100 > LITTLE]
    order = {name: place for place, name in enumerate(names)}
    mean = rows.groupby(["trace", "policy", "capacity"])["headroom_closed"].mean().reset_index()
    return mean.sort_values(
        ["trace", "policy"], key=lambda c: c.map(order) if c.name == "policy" else c
    )


def headline(cells: pd.DataFrame) -> dict[str, object]:
    """Return the numbers that the chapter's prose names."""
    table = against_lru(online(cells))
    return {
        "online": len(table),
        "never_behind": int((table["lost"] == 0).sum()),
        "best_online": str(table.index[0]),
        "best_gain": f"{table['mean_gain_pp'].iloc[0]:.1f}",
    }


def against_lru_by_trace(cells: pd.DataFrame) -> pd.DataFrame:
    """Return `against_lru` over all traces, with the mean gain on each and who knows the future."""
    table = against_lru(cells)
    by_trace = cells.pivot_table(index="policy", columns="trace", values="gain_pp").round(2)
    table["knows the future"] = ["yes" if knows_future(name) else "" for name in table.index]
    return table.join(by_trace.add_prefix("mean gain, "))


def mean_ranks(cells: pd.DataFrame) -> pd.DataFrame:
    """Return the mean rank of each online policy and LRU over cells, 1 the best.

    A column tells whether it is within Nemenyi's critical difference (5 %) of the
    first. The cells of one trace are not independent, so read it as a summary.
    """
    fair = pd.concat([online(cells), cells[cells["policy"] == "lru"]])
    fair = fair[fair["opt_ratio"] > 0]
    wide = fair.pivot_table(
        index=["trace", "capacity", "seed"], columns="policy", values="hit_ratio"
    )
    ranks = wide.dropna().rank(axis=1, ascending=False)
    mean, policies, cases = ranks.mean().sort_values(), ranks.shape[1], len(ranks)
    quantile = studentized_range.ppf(0.95, policies, np.inf) / np.sqrt(2)
    difference = quantile * np.sqrt(policies * (policies + 1) / (6 * cases))
    table = mean.round(2).to_frame("mean rank")
    table["not told apart from the first"] = np.where(mean - mean.iloc[0] <= difference, "yes", "")
    return table


def intervals(cells: pd.DataFrame, trace: str) -> pd.DataFrame:
    """Return the gain over LRU in points: mean, range over seeds, widest bootstrap interval."""
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
    return (
        rows.assign(point=place)
        .pivot_table(index=["trace", "policy"], columns="point", values="gain_pp")
        .round(3)
    )


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
