"""Heat maps: what binds over capacities and TTLs, and what policies gain over capacities."""

from collections.abc import Sequence

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap, SymLogNorm
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import NullFormatter

from kvsim.analysis.worth import KV_BYTES

# Told apart by colour-blind readers, and in grey by their lightness.
REGIMES = {
    "compulsory": "#f2f0e6",
    "capacity-bound, mild": "#f6c667",
    "capacity-bound, heavy": "#d55e00",
    "TTL-bound": "#7fb8dd",
}
LOST = (1, 5, 10, 20, 40, 60, 80)  # points, where contours are drawn
WIDTH = 5.4  # inches; a phone shows this at two thirds, 10.5 points at 9 px
TEXT = 10.5
GAIN_LIMIT = 20.0  # points over LRU at which colours end
EVEN = 0.5  # points around 0 in which colours grow evenly


def regime_map(table: pd.DataFrame, bytes_per_token: float = KV_BYTES) -> Figure:
    """Draw what binds as a map of capacity and TTL, a panel a trace, one below the other.

    Colours tell the regime; contours the points that LRU with the TTL is behind an infinite cache.

    Parameters
    ----------
    table : DataFrame
        One row a capacity and TTL of a trace: `capacity` (blocks), `block_tokens`, `ttl_s`
        (seconds; infinite: none), `regime`, `lost_pp` (points), and `trace` where there is more
        than one.
    bytes_per_token : float
        KV bytes of a token, for the axis in GiB.
    """
    traces = list(table.groupby("trace", sort=False)) if "trace" in table else [("", table)]
    figure, axes = plt.subplots(
        len(traces), 1, figsize=(WIDTH, 3.6 * len(traces) + 0.5), squeeze=False
    )
    for axis, (trace, part) in zip(axes.flat, traces, strict=True):
        _regimes(axis, part)
        axis.set_title(str(trace), loc="left", fontsize=TEXT + 1)
        gib = float(part["block_tokens"].iloc[0]) * bytes_per_token / 2**30
        above = axis.secondary_xaxis(
            "top", functions=(lambda x, g=gib: x * g, lambda x, g=gib: x / g)
        )
        above.set_xlabel(f"GiB at {bytes_per_token / 1024:g} KiB a token", fontsize=TEXT)
        above.tick_params(labelsize=TEXT)
    used = [name for name in REGIMES if name in set(table["regime"])]
    keys = [Patch(facecolor=REGIMES[name], edgecolor="#555555") for name in used]
    figure.legend(keys, used, loc="outside lower center", ncols=2, fontsize=TEXT)
    return figure


def _regimes(axis: Axes, part: pd.DataFrame) -> None:
    names = list(REGIMES)
    code = part["regime"].map(names.index)
    wide = part.assign(code=code).pivot(index="ttl_s", columns="capacity", values="code")
    sizes, rows = wide.columns.to_numpy(dtype=float), np.arange(len(wide))
    middle = np.sqrt(sizes[1:] * sizes[:-1])
    edges = np.concatenate([sizes[:1], middle, sizes[-1:]])
    axis.pcolormesh(
        edges,
        np.arange(len(rows) + 1) - 0.5,
        wide,
        cmap=ListedColormap(list(REGIMES.values())),
        vmin=-0.5,
        vmax=len(REGIMES) - 0.5,
    )
    lost = part.pivot(index="ttl_s", columns="capacity", values="lost_pp")
    levels = [level for level in LOST if lost.min().min() < level < lost.max().max()]
    if levels and lost.shape[0] > 1 and lost.shape[1] > 1:
        lines = axis.contour(
            sizes, rows, lost, levels, colors="#222222", linewidths=1, linestyles="-"
        )
        axis.clabel(lines, fmt=lambda level: f"−{level:.0f}", fontsize=TEXT)
    axis.set_xscale("log")
    axis.set_xlabel("capacity (blocks)", fontsize=TEXT)
    axis.set_ylabel("TTL", fontsize=TEXT)
    axis.set_yticks(rows, [_time(ttl) for ttl in wide.index], fontsize=TEXT)
    axis.tick_params(axis="x", labelsize=TEXT)
    axis.xaxis.set_minor_formatter(NullFormatter())
    axis.grid(visible=False)


def _time(seconds: float) -> str:
    if np.isinf(seconds):
        return "none"
    for unit, size in (("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:g} {unit}"
    return f"{seconds:g} s"


def policy_heat_map(table: pd.DataFrame, first: Sequence[str] = ()) -> Figure:
    """Draw the points over LRU of every policy at every capacity of one trace, best on top.

    Parameters
    ----------
    table : DataFrame
        One row a policy, capacity (blocks) and seed: `gain_pp`, points of hit ratio over LRU.
    first : sequence of str
        Policies above all others, such as the optimum.
    """
    means = table.groupby(["policy", "capacity"])["gain_pp"].mean().unstack("capacity")
    means = means.loc[means.mean(axis=1).sort_values(ascending=False, kind="stable").index]
    above = [name for name in first if name in means.index]
    means = means.loc[[*above, *means.index.drop(above)]]
    figure, axis = plt.subplots(figsize=(WIDTH, 0.215 * len(means) + 1.1))
    # Colour-blind readers tell purple from orange.
    norm = SymLogNorm(EVEN, vmin=-GAIN_LIMIT, vmax=GAIN_LIMIT)
    image = axis.imshow(means, cmap="PuOr_r", norm=norm, aspect="auto")
    for (row, column), gain in np.ndenumerate(means.to_numpy()):
        red, green, blue, _ = image.to_rgba(gain)
        color = "white" if 0.3 * red + 0.6 * green + 0.1 * blue < 0.5 else "black"
        axis.text(
            column, row, _gain(gain), ha="center", va="center", fontsize=TEXT - 0.5, color=color
        )
    axis.set_yticks(range(len(means)), means.index, fontsize=TEXT)
    labels = [_blocks(size) for size in means.columns.to_numpy(dtype=float)]
    axis.set_xticks(range(len(labels)), labels, fontsize=TEXT, rotation=60)
    axis.set_xlabel("capacity (blocks)", fontsize=TEXT)
    axis.grid(visible=False)
    axis.tick_params(length=0)
    if above:
        axis.axhline(len(above) - 0.5, color="#555555", linewidth=1.5)
    return figure


def _gain(points: float) -> str:
    if np.isnan(points):
        return ""
    if abs(points) < 0.05:
        return "0"
    text = f"{points:.1f}" if abs(points) < 9.95 else f"{points:.0f}"
    return text.replace("-", "−")


def _blocks(blocks: float) -> str:
    for unit, size in (("M", 1e6), ("k", 1e3)):
        if blocks >= size:
            return f"{blocks / size:.3g}{unit}"
    return f"{blocks:g}"
