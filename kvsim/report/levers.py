"""Figures of levers: memory in GiB, compression, and keep-alive at a provider's prices."""

from functools import partial

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from kvsim.cache import models


def gain_by_compression(table: pd.DataFrame) -> Figure:
    """Draw what each unit of compression adds, a panel a trace and quantity, a line a pressure.

    Parameters
    ----------
    table : DataFrame
        Columns `trace`, `share` (the uncompressed capacity), `ratio`, `hit_ratio`, and
        `recompute_flops`, whose part of that at ratio 1 is drawn.
    """
    traces = list(dict.fromkeys(table["trace"]))
    figure, axes = plt.subplots(
        2, len(traces), figsize=(3.2 * len(traces) + 1.2, 5.6), squeeze=False, sharex=True
    )
    for column, trace in zip(axes.T, traces, strict=True):
        for share, line in table[table["trace"] == trace].groupby("share", sort=False):
            line = line.sort_values("ratio")
            first = line["recompute_flops"].iloc[0]
            column[0].plot(line["ratio"], 100 * line["hit_ratio"], label=str(share))
            if first:
                column[1].plot(line["ratio"], 100 * line["recompute_flops"] / first)
        column[0].set_title(trace)
        column[1].set(xlabel="compression (times)", ylim=(0, 104))
        column[1].xaxis.set_major_locator(MaxNLocator(integer=True))
    axes[0, 0].set_ylabel("hit ratio (% of blocks)")
    axes[1, 0].set_ylabel("recomputed FLOPs (%)")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right upper", title="memory, of\ndistinct blocks")
    return figure


def keep_alive(table: pd.DataFrame) -> Figure:
    """Draw what up to so many pings save of the price without any, a panel a trace, a line a TTL.

    Parameters
    ----------
    table : DataFrame
        Columns `trace`, `prices`, `pings`, `saved_share`.
    """
    traces = list(dict.fromkeys(table["trace"]))
    figure, axes = plt.subplots(1, len(traces), figsize=(4.2 * len(traces) + 1, 3.6), squeeze=False)
    for axis, trace in zip(axes[0], traces, strict=True):
        for prices, line in table[table["trace"] == trace].groupby("prices", sort=False):
            line = line.sort_values("pings")
            axis.plot(line["pings"], 100 * line["saved_share"], label=f"TTL {prices}")
        axis.axhline(0, color="#555555", linewidth=1, linestyle="-", marker="")
        axis.set(xlabel="pings in a silence, at most", title=trace)
        axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes[0, 0].set_ylabel("saved (% of the price)")
    axes[0, 0].legend()
    return figure


def add_memory_axis(axis: Axes, block_size: int, model: str, precision: str = "bf16") -> None:
    """Say on top of an axis in blocks how many GiB they take.

    Parameters
    ----------
    axis : Axes
        Its x axis counts blocks.
    block_size : int
        Tokens of a block.
    model : str
        A name of `kvsim.cache.models.models`.
    precision : str
        A name of `kvsim.cache.models.PRECISIONS`.
    """
    blocks = models.get(model).blocks_per_gib(block_size, precision)
    to_gib, to_blocks = partial(np.multiply, 1 / blocks), partial(np.multiply, blocks)
    top = axis.secondary_xaxis("top", functions=(to_gib, to_blocks))
    top.set_xlabel(f"GiB of {model} in {precision}, blocks of {block_size} tokens")
