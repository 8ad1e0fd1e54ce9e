"""What it is worth to store a block in 1/r of its bytes: the same memory holds r times as many.

Compression is taken to lose nothing and to cost no time, so all this is the most that it can give.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from kvsim.cache.capacity import parse
from kvsim.cache.costs import LLAMA_3_70B, CostModel, recompute_cost
from kvsim.cache.curves import lru_curve
from kvsim.cache.sweep import simulate
from kvsim.traces.trace import Trace, TraceError

RATIOS = (1, 2, 3, 4, 5, 6, 7, 8)


def compression(
    trace: Trace,
    capacities: Sequence[str | int],
    ratios: Sequence[float] = RATIOS,
    model: CostModel = LLAMA_3_70B,
) -> pd.DataFrame:
    """Return what LRU hits and recomputes with `ratio` times each capacity.

    Hits are read off the exact curve; FLOPs depend on where in a prompt the misses lie, so each
    capacity is replayed.

    Parameters
    ----------
    trace : Trace
        The requests.
    capacities : sequence of str or int
        Uncompressed, as `kvsim.cache.capacity.parse` takes them.
    ratios : sequence of float
        Ascending from 1: how many times as many blocks the memory holds.
    model : CostModel
        What a recomputed token costs.

    Returns
    -------
    DataFrame
        A row a capacity and ratio: ``share`` (the capacity as given), ``ratio``, ``capacity``
        (blocks, rounded down), ``hit_blocks``, ``hit_ratio``, ``recompute_flops``; against the
        ratio before, per unit of ratio, ``hit_points`` (percentage points of blocks) and
        ``saved_share`` (of the FLOPs recomputed at ratio 1); missing at ratio 1, or of nothing.

    Raises
    ------
    TraceError
        If the trace is on no common clock, or the ratios do not ascend from 1.
    """
    if list(ratios) != sorted(set(ratios)) or not ratios or ratios[0] != 1:
        raise TraceError(f"compression ratios are {list(ratios)}; they must ascend from 1")
    hits = lru_curve(trace)
    parts = []
    for given in capacities:
        blocks = parse(given, trace)
        sizes = [min(int(ratio * blocks), trace.distinct_blocks) for ratio in ratios]
        part = pd.DataFrame({"share": str(given), "ratio": ratios, "capacity": sizes})
        part["hit_blocks"] = hits[sizes]
        part["hit_ratio"] = part["hit_blocks"] / (trace.blocks or np.nan)
        part["recompute_flops"] = [_recomputed(trace, size, model) for size in sizes]
        step = part["ratio"].diff()
        part["hit_points"] = 100 * part["hit_ratio"].diff() / step
        base = part["recompute_flops"].iloc[0] or np.nan
        less = part["recompute_flops"].shift() - part["recompute_flops"]
        part["saved_share"] = less / step / base
        parts.append(part)
    return pd.concat(parts, ignore_index=True)


def _recomputed(trace: Trace, capacity: int, model: CostModel) -> float:
    return float(recompute_cost(trace, simulate(trace, "lru", capacity), model).sum())
