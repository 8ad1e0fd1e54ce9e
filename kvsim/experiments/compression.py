"""Compression: what r times the blocks in the same memory are worth, by trace and pressure."""

from collections.abc import Sequence

import pandas as pd

from kvsim.analysis.compression import RATIOS, compression
from kvsim.experiments.plain import count, figure, label, lay_out, percent
from kvsim.experiments.store import Experiment
from kvsim.report.results import Tables
from kvsim.traces.arrivals import arrange
from kvsim.traces.trace import Trace

SHARES = ("0.5%", "1%", "2%", "5%", "10%", "20%")  # of the distinct blocks: the pressure


def tables(
    trace: Trace,
    window: float = 8 * 3600,
    seed: int = 0,
    shares: Sequence[str | int] = SHARES,
    ratios: Sequence[float] = RATIOS,
) -> Tables:
    """Return what LRU hits and recomputes with each multiple of each capacity.

    Parameters
    ----------
    trace : Trace
        The requests.
    window, seed : float, int
        Seconds and seed of the session starts, where the trace has sessions.
    shares : sequence of str or int
        Capacities, as `kvsim.cache.capacity.parse` takes them.
    ratios : sequence of float
        Of compression, ascending from 1.

    Returns
    -------
    dict of DataFrame
        ``cells``, as `kvsim.analysis.compression.compression` returns it, rounded.
    """
    cells = compression(arrange(trace, window, seed), shares, ratios)
    digits = {"hit_ratio": 6, "hit_points": 4, "saved_share": 4}
    cells["recompute_flops"] = [float(f"{flops:.6g}") for flops in cells["recompute_flops"]]
    return {"cells": cells.round(digits)}


def worth(cells: pd.DataFrame) -> pd.DataFrame:
    """Return, for each trace and pressure, what twice, four and eight times the blocks give.

    Parameters
    ----------
    cells : DataFrame
        The experiment's table, with a column `trace`.

    Returns
    -------
    DataFrame
        By trace and share: LRU's hit ratio, and for each ratio the percentage points of hits
        and the share of recomputed FLOPs that it saves; none where nothing was recomputed.
    """
    keys = ["trace", "share"]
    base = cells[cells["ratio"] == 1].set_index(keys)
    table = base[["capacity", "hit_ratio"]].copy()
    for ratio in (2, 4, 8):
        part = cells[cells["ratio"] == ratio].set_index(keys)
        table[f"points {ratio}x"] = (100 * (part["hit_ratio"] - base["hit_ratio"])).round(2)
        left = part["recompute_flops"] / base["recompute_flops"]
        table[f"saved {ratio}x"] = (1 - left).round(4)
    return table


def text(trace: str, tables: Tables) -> str:
    """Return the readable report of one trace."""
    cells = tables["cells"]
    return lay_out(
        cells,
        {
            "share": ("of distinct", label),
            "ratio": ("ratio", figure),
            "capacity": ("capacity", count),
            "hit_ratio": ("hit ratio", percent),
            "hit_points": ("points a unit", figure),
            "recompute_flops": ("recomputed FLOPs", "{:.3e}".format),
            "saved_share": ("saved a unit", percent),
        },
    )


EXPERIMENT = Experiment(
    11, "compression", "Compression: r times the blocks in the same memory", tables, text
)
