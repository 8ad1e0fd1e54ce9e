"""Validation: our hit rates beside the published ones, under every definition of a hit."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from kvsim.cache.engine import Switches
from kvsim.cache.result import Result
from kvsim.cache.sweep import simulate
from kvsim.experiments.store import Experiment
from kvsim.report import published
from kvsim.report.results import Tables
from kvsim.traces.arrivals import arrange
from kvsim.traces.trace import Trace

CAPACITIES = (1_000, 10_000, 30_000, 50_000, 100_000)
FLAT = Switches(eviction="flat", touch_order="root-oldest")
CAPPED = Switches(hit_cap="engine")
FLAT_LIMIT = 10_000_000  # block accesses; the flat cache works block by block


def tables(
    trace: Trace,
    capacities: Sequence[int] = CAPACITIES,
    window: float = 8 * 3600,
    seed: int = 0,
) -> Tables:
    """Return hit rates by policy and by definition of a hit.

    Parameters
    ----------
    trace : Trace
        The requests.
    capacities : sequence of int
        Blocks; the infinite cache is added.
    window, seed : float, int
        Seconds and seed of the session starts, where the trace has sessions.
    """
    trace = arrange(trace, window, seed)
    sizes = [*(size for size in capacities if size < trace.distinct_blocks), trace.distinct_blocks]
    runs = {size: simulate(trace, "lru", size) for size in sizes}
    capped = {size: simulate(trace, "lru", size, switches=CAPPED) for size in sizes}
    rates = [_rate(trace, "lru, leaf", runs[size]) for size in sizes]
    if trace.blocks <= FLAT_LIMIT:
        flat = (simulate(trace, "lru", size, switches=FLAT) for size in sizes)
        rates += [_rate(trace, "lru, flat (root oldest)", run) for run in flat]
    for policy in ("lfu", "fifo", "opt"):
        rates += [_rate(trace, policy, simulate(trace, policy, size)) for size in sizes]
    definitions = [
        {
            "definition": name,
            "capacity": size,
            "infinite": size >= trace.distinct_blocks,
            "hit_ratio": round(ratio, 6),
        }
        for size in sizes
        for name, ratio in _definitions(trace, runs[size], capped[size]).items()
    ]
    return {"rates": pd.DataFrame(rates), "definitions": pd.DataFrame(definitions)}


def _rate(trace: Trace, policy: str, result: Result) -> dict[str, object]:
    hits = int(result.hit_blocks.sum())
    return {
        "policy": policy,
        "capacity": result.capacity,
        "infinite": result.capacity >= trace.distinct_blocks,
        "hit_blocks": hits,
        "hit_tokens": int(result.hit_tokens.sum()),
        "hit_ratio": round(hits / trace.blocks, 6),
    }


def _definitions(trace: Trace, run: Result, capped: Result) -> dict[str, float]:
    """Return the hit ratio of one run under every definition."""
    chain = trace.chain_blocks
    full = trace.chain_tokens // trace.block_size  # a partial tail is no full block
    half = np.arange(trace.requests) >= trace.requests // 2
    some = chain > 0
    return {
        "blocks": run.hit_blocks.sum() / chain.sum(),
        "tokens": run.hit_tokens.sum() / trace.input_tokens.sum(),
        "full blocks only": np.minimum(run.hit_blocks, full).sum() / full.sum(),
        "full blocks hit / all blocks": np.minimum(run.hit_blocks, full).sum() / chain.sum(),
        "mean over requests": (run.hit_blocks[some] / chain[some]).mean(),
        "engine cap (last token recomputed)": capped.hit_blocks.sum() / chain.sum(),
        "blocks, last half of the requests": run.hit_blocks[half].sum() / chain[half].sum(),
    }


def text(trace: str, tables: Tables) -> str:
    """Return the readable report of one trace."""
    rates = tables["rates"]
    wide = by_capacity(rates, "policy")
    definitions = by_capacity(tables["definitions"], "definition")
    lines = ["Hit ratio (blocks) by capacity in blocks:", "", wide.to_string(), ""]
    flat = flat_minus_leaf(rates)
    if len(flat):
        lines += ["Flat LRU minus leaf LRU, percentage points:", "", flat.to_string(), ""]
    lines += ["Leaf LRU under other definitions of a hit:", "", definitions.to_string(), ""]
    if trace in published.MOONCAKE_TRACES:
        reported = published.mooncake_table_1().to_string()
        lines += ["Published beside it (Mooncake technical report, Table 1):", "", reported, ""]
    return "\n".join(lines)


def by_capacity(table: pd.DataFrame, row: str) -> pd.DataFrame:
    """Return hit ratios with a row a `row` and a column a capacity; the infinite cache is ∞."""
    labelled = table.assign(
        capacity=np.where(
            table["infinite"], "∞", table["capacity"].map(lambda size: f"{size / 1000:g}k")
        )
    )
    order = list(dict.fromkeys(labelled["capacity"]))
    wide = labelled.pivot(index=row, columns="capacity", values="hit_ratio")
    rows: list[str] = list(dict.fromkeys(labelled[row]))
    return wide.loc[rows, order].round(4)


def flat_minus_leaf(rates: pd.DataFrame) -> pd.DataFrame:
    """Return the difference of flat and leaf LRU in percentage points."""
    wide = by_capacity(rates, "policy")
    if "lru, flat (root oldest)" not in wide.index:
        return wide.iloc[:0]
    flat, leaf = (wide.loc[[row]].to_numpy() for row in ("lru, flat (root oldest)", "lru, leaf"))
    difference = 100 * (flat - leaf)
    return pd.DataFrame(difference.round(3), ["flat - leaf (pp)"], wide.columns)


def beside_table_1(rates: pd.DataFrame) -> pd.DataFrame:
    """Return the hit ratios of every Mooncake trace that has results."""
    rows = rates[rates["trace"].isin(published.MOONCAKE_TRACES)]
    return _by_trace(rows, "policy")


def definitions_by_trace(definitions: pd.DataFrame) -> pd.DataFrame:
    """Return the hit ratio of leaf LRU by definition of a hit, for every trace."""
    return _by_trace(definitions, "definition")


def flat_minus_leaf_by_trace(rates: pd.DataFrame) -> pd.DataFrame:
    """Return flat minus leaf LRU in percentage points, for every trace that has both."""
    parts = {trace: flat_minus_leaf(part) for trace, part in rates.groupby("trace", sort=False)}
    return pd.concat(parts, names=["trace", ""])


def flat_words(rates: pd.DataFrame) -> dict[str, object]:
    """Return by how many points flat and leaf LRU differ at most on each trace that has both."""
    rows = rates[rates["policy"].isin(["lru, leaf", "lru, flat (root oldest)"])]
    wide = rows.pivot_table(index=["trace", "capacity"], columns="policy", values="hit_ratio")
    change = 100 * (wide["lru, flat (root oldest)"] - wide["lru, leaf"]).dropna().abs()
    most = change.groupby("trace").max()
    return {"flat_most": ", ".join(f"{value:.2f} ({trace})" for trace, value in most.items())}


def published_words() -> dict[str, object]:
    """Return by how many points the independent replay lies above the published table."""
    replay, report = (published.MOONCAKE_TABLE_1[row] for row in (published.REPLAY, "LRU"))
    above = [100 * (one - other) for one, other in zip(replay, report, strict=True)]
    told = {
        f"fast25_{name}": f"{100 * x:.0f} %" for name, x in published.FAST25_CACHE_RATIO.items()
    }
    return {"replay_least": f"{min(above):.1f}", "replay_most": f"{max(above):.1f}", **told}


def headline(rates: pd.DataFrame) -> dict[str, object]:
    """Return the numbers that the chapter's prose names."""
    missing = [name for name in published.MOONCAKE_TRACES if name not in set(rates["trace"])]
    here = f"no results are committed yet for {', '.join(missing)}." if missing else "all are here."
    infinite = rates[rates["infinite"] & (rates["policy"] == "lru, leaf")].set_index("trace")
    blocks = {f"blocks_{name}": ratio for name, ratio in infinite["hit_ratio"].items()}
    return {"missing_mooncake": here, **{str(key): value for key, value in blocks.items()}}


def full_blocks(definitions: pd.DataFrame) -> dict[str, object]:
    """Return the infinite cache's ratio over full blocks, by trace."""
    rows = definitions[definitions["infinite"] & (definitions["definition"] == "full blocks only")]
    ratios = rows.set_index("trace")["hit_ratio"].items()
    return {f"full_{name}": ratio for name, ratio in ratios}


def _by_trace(table: pd.DataFrame, row: str) -> pd.DataFrame:
    parts = {trace: by_capacity(part, row) for trace, part in table.groupby("trace", sort=False)}
    return pd.concat(parts, names=["trace", row]).fillna("")


EXPERIMENT = Experiment(1, "validate", "Validation: published hit rates beside ours", tables, text)
