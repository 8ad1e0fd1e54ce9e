"""Figures: each function takes a tidy table and returns a Matplotlib figure or axes."""

from collections.abc import Iterator, Mapping
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from cycler import cycler
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import NullFormatter

# Okabe and Ito's palette, which colour-blind readers tell apart. Its yellow is left out: it is too
# light on white. Dashes and markers tell the lines apart in grey as well.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
DASHES = ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (1, 1)))
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
HATCHES = ("", "//", "", "..", "", "xx")

STYLE: dict[Any, Any] = {
    "axes.axisbelow": True,
    "axes.edgecolor": "#555555",
    "axes.grid": True,
    "axes.labelsize": 12,
    "axes.prop_cycle": cycler(color=COLORS, linestyle=DASHES, marker=MARKERS),
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 13,
    "figure.constrained_layout.use": True,
    # Opaque white, also where the page is dark: the book's style sheet inverts the lightness there,
    # and everywhere else a white card stays readable.
    "figure.facecolor": "white",
    "figure.figsize": (6.4, 4.0),
    "figure.dpi": 144,
    "font.size": 12,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.8,
    "legend.frameon": False,
    "lines.linewidth": 1.8,
    "lines.markersize": 5,
    "savefig.dpi": 144,
}


def use_style() -> None:
    """Set Matplotlib's defaults to those of the book, from Matplotlib's own defaults."""
    mpl.rcdefaults()
    mpl.rcParams.update(STYLE)


def hit_ratio_by_capacity(
    table: pd.DataFrame, series: str = "policy", value: str = "hit_ratio"
) -> Figure:
    """Draw hit ratio against capacity in blocks (log), a line a series, a panel a trace.

    Parameters
    ----------
    table : DataFrame
        Columns `capacity` (blocks), `value` (a share of 1), `series`, and `trace`
        where there is more than one.
    """
    traces = list(dict.fromkeys(table["trace"])) if "trace" in table else [None]
    columns = min(2, len(traces))
    rows = -(-len(traces) // columns)
    figure, axes = plt.subplots(
        rows, columns, figsize=(4.6 * columns + 1.2, 3.4 * rows), squeeze=False, sharey=False
    )
    for axis, trace in zip(axes.flat, traces, strict=False):
        part = table if trace is None else table[table["trace"] == trace]
        for name, line in part.groupby(series, sort=False):
            line = line[line["capacity"] > 0].sort_values("capacity")
            axis.plot(line["capacity"], 100 * line[value], label=str(name), **_spaced(len(line)))
        axis.set(xscale="log", xlabel="capacity (blocks)", title=trace or "")
        axis.set_ylim(bottom=0)
    for axis in axes.flat[len(traces) :]:
        axis.set_axis_off()
    for axis in axes[:, 0]:
        axis.set_ylabel("hit ratio (% of blocks)")
    handles, labels = axes.flat[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right upper")
    return figure


def _spaced(points: int) -> dict[str, Any]:
    """Return few enough markers to tell lines apart on a dense curve."""
    return {"markevery": max(1, points // 8)}


def changes(table: pd.DataFrame, label: str, value: str, xlabel: str, top: int = 20) -> Figure:
    """Draw signed changes as horizontal bars, the most negative on top.

    Parameters
    ----------
    table : DataFrame
        One row a bar; `label` names it, `value` is its length.
    top : int
        Bars drawn.
    """
    rows = table.sort_values(value, kind="stable").head(top).iloc[::-1]
    figure, axis = plt.subplots(figsize=(7.2, 0.32 * len(rows) + 1.2))
    colors = [COLORS[1] if change < 0 else COLORS[0] for change in rows[value]]
    axis.barh(rows[label].astype(str), rows[value], color=colors)
    axis.axvline(0, color="#555555", linewidth=1)
    axis.set_xlabel(xlabel)
    return figure


def log_histograms(
    table: pd.DataFrame, xlabel: str, marks: Mapping[str, float] | None = None
) -> Figure:
    """Draw histograms with bins of equal width on a log scale, an outline a trace.

    Parameters
    ----------
    table : DataFrame
        One quantity: columns `low`, `high` (bounds of the bins), `count`, and `trace`
        where there is more than one.
    xlabel : str
        The quantity with its unit.
    marks : dict
        Positions to mark with a line, by their label.
    """
    figure, axis = plt.subplots()
    for number, (trace, part) in enumerate(_by_trace(table)):
        edges = [*part["low"], part["high"].iloc[-1]]
        share = 100 * part["count"] / part["count"].sum()
        axis.stairs(share, edges, label=trace, color=COLORS[number], linestyle=DASHES[number])
    _mark(axis, marks or {})
    axis.set(xscale="log", xlabel=xlabel, ylabel="share of values (%)")
    axis.set_ylim(bottom=0)
    return _with_legend(figure, axis)


def ecdfs(
    table: pd.DataFrame,
    xlabel: str,
    marks: Mapping[str, float] | None = None,
    published: pd.DataFrame | None = None,
) -> Figure:
    """Draw empirical distribution functions on a log scale, a line a trace.

    Parameters
    ----------
    table : DataFrame
        One quantity: columns `value`, `share` (of values at or below it), and `trace`
        where there is more than one. Values of 0 lie left of the axis.
    xlabel : str
        The quantity with its unit.
    marks : dict
        Positions to mark with a line, by their label.
    published : DataFrame, optional
        Points beside ours: columns `value`, `share`, `source`.
    """
    figure, axis = plt.subplots()
    for number, (trace, part) in enumerate(_by_trace(table)):
        part = part[part["value"] > 0]
        style: dict[str, Any] = {"color": COLORS[number], "linestyle": DASHES[number]}
        axis.plot(
            part["value"],
            100 * part["share"],
            drawstyle="steps-post",
            label=trace,
            marker=MARKERS[number],
            **style,
            **_spaced(len(part)),
        )
    if published is not None:
        for source, points in published.groupby("source", sort=False):
            style = {"color": COLORS[-1], "linestyle": "none", "marker": "*", "markersize": 11}
            axis.plot(points["value"], 100 * points["share"], label=str(source), **style)
    _mark(axis, marks or {})
    axis.set(xscale="log", xlabel=xlabel, ylabel="values at or below (%)", ylim=(0, 100))
    return _with_legend(figure, axis)


def session_timelines(table: pd.DataFrame) -> Figure:
    """Draw when a few sessions execute, a row a session, over the share of its life.

    Bars run from arrival to the end of service; a request without a service time is a tick.

    Parameters
    ----------
    table : DataFrame
        One row a request: `session`, `duty` (share of its life that the session executes),
        `span_s` and `start_s`, `service_s` (seconds from the session's first arrival; NaN unknown),
        `subagent`.
    """
    sessions = list(table.groupby("session", sort=False))
    figure, axis = plt.subplots(figsize=(7.6, 0.75 * len(sessions) + 1.4))
    labels = []
    for row, (_, part) in enumerate(sessions):
        span = part["span_s"].iloc[0]
        for subagent, requests in part.groupby("subagent"):
            timed = requests.dropna(subset="service_s")
            bars = (100 * timed[["start_s", "service_s"]] / span).to_numpy()
            place = (row + 0.02, 0.32) if subagent else (row - 0.34, 0.32)
            axis.broken_barh(bars, place, color=COLORS[1] if subagent else COLORS[0])
            untimed = 100 * requests.loc[requests["service_s"].isna(), "start_s"] / span
            axis.plot(
                untimed, [row - 0.4] * len(untimed), "|", color=COLORS[-1], markersize=6, zorder=3
            )
        labels.append(f"{_duration(span)}, {100 * part['duty'].iloc[0]:.0f} %")
    axis.set(xlabel="share of the session's life (%)", xlim=(0, 100))
    axis.set_yticks(range(len(sessions)), labels)
    axis.invert_yaxis()
    axis.grid(axis="y", visible=False)
    kinds = {
        "main": Patch(color=COLORS[0]),
        "sub-agent": Patch(color=COLORS[1]),
        "unknown service time": Line2D([], [], color=COLORS[-1], marker="|", linestyle="none"),
    }
    figure.legend(kinds.values(), kinds.keys(), loc="outside upper left", ncols=3)
    return figure


def working_sets(table: pd.DataFrame, marks: Mapping[str, float] | None = None) -> Figure:
    """Draw the mean working set against the window, both log, a line a trace.

    Parameters
    ----------
    table : DataFrame
        Columns `window_s` (seconds), `blocks`, and `trace` where there is more than one.
    marks : dict
        Windows to mark with a line, by their label.
    """
    figure, axis = plt.subplots()
    for number, (trace, part) in enumerate(_by_trace(table)):
        style: dict[str, Any] = {"color": COLORS[number], "marker": MARKERS[number]}
        axis.plot(part["window_s"], part["blocks"], label=trace, ls=DASHES[number], **style)
    _mark(axis, marks or {})
    axis.set(xscale="log", yscale="log", xlabel="window (s)", ylabel="mean working set (blocks)")
    return _with_legend(figure, axis)


def stacked_shares(table: pd.DataFrame, share: str, part: str, ylabel: str) -> Figure:
    """Draw stacked bars that add up to 100 %, a bar a capacity, in the order of the parts.

    Parameters
    ----------
    table : DataFrame
        Columns `capacity` (blocks), `part` (what the shares belong to) and `share` (of 1).
    ylabel : str
        What the shares are of.
    """
    wide = table.pivot(index="capacity", columns=part, values=share)[list(table[part].unique())]
    wide = 100 * wide.dropna().loc[:, wide.fillna(0).any()]
    figure, axis = plt.subplots(figsize=(8.0, 4.2))
    shades = plt.get_cmap("cividis")(np.linspace(0, 0.62, max(2, len(wide.columns))))
    below = np.zeros(len(wide))
    for number, name in enumerate(wide.columns):
        axis.bar(
            range(len(wide)),
            wide[name],
            bottom=below,
            color=shades[number],
            hatch=HATCHES[number % len(HATCHES)],
            edgecolor="white",
            linewidth=0.5,
            label=name,
        )
        below += wide[name].to_numpy()
    axis.set(xlabel="capacity (blocks)", ylabel=ylabel, ylim=(0, 100))
    names = [_short(size) for size in wide.index]
    axis.set_xticks(range(len(wide)), names, rotation=45, ha="right", rotation_mode="anchor")
    axis.grid(axis="x", visible=False)
    handles, labels = axis.get_legend_handles_labels()
    figure.legend(handles[::-1], labels[::-1], loc="outside right upper")
    return figure


def ttl_beside_lru(table: pd.DataFrame) -> Figure:
    """Draw LRU with TTLs beside LRU: hit ratio above, share of removals by the TTL below.

    Parameters
    ----------
    table : DataFrame
        One sample of sessions: columns `ttl_s`, `capacity` (blocks), `lru_hit_ratio`,
        `ttl_hit_ratio`, `removed_by_ttl_share` (of 1).
    """
    figure, (above, below) = plt.subplots(
        2, 1, sharex=True, figsize=(7.2, 5.6), height_ratios=(3, 2)
    )
    lru = table.drop_duplicates("capacity").sort_values("capacity")
    style: dict[str, Any] = {"color": COLORS[-1], "ls": DASHES[0], "marker": ""}
    above.plot(lru["capacity"], 100 * lru["lru_hit_ratio"], label="LRU", **style)
    for number, (ttl, part) in enumerate(table.groupby("ttl_s")):
        style = {"color": COLORS[number], "ls": DASHES[number + 1], "marker": MARKERS[number]}
        style |= {"label": f"TTL-{ttl:.0f}", **_spaced(len(part))}
        above.plot(part["capacity"], 100 * part["ttl_hit_ratio"], **style)
        below.plot(part["capacity"], 100 * part["removed_by_ttl_share"], **style)
    above.set(xscale="log", ylabel="hit ratio (% of blocks)")
    above.set_ylim(bottom=0)
    below.set(xlabel="capacity (blocks)", ylabel="removed by TTL (%)", ylim=(-3, 103))
    handles, labels = above.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right upper")
    return figure


def _by_trace(table: pd.DataFrame) -> Iterator[tuple[str | None, pd.DataFrame]]:
    if "trace" not in table:
        yield None, table
        return
    for trace, part in table.groupby("trace", sort=False):
        yield str(trace), part


def _mark(axis: Axes, marks: Mapping[str, float]) -> None:
    for label, position in marks.items():
        axis.axvline(position, color="#555555", linewidth=1, linestyle=":", marker="")
        place = (position, 1.0)
        axis.annotate(label, place, xycoords=("data", "axes fraction"), ha="center", va="bottom")


def _with_legend(figure: Figure, axis: Axes) -> Figure:
    handles, labels = axis.get_legend_handles_labels()
    if labels:
        figure.legend(handles, labels, loc="outside lower center", ncols=3)
    return figure


def _short(blocks: float) -> str:
    if blocks >= 1e6:
        return f"{blocks / 1e6:.3g}M"
    return f"{blocks / 1e3:.3g}k" if blocks >= 1e3 else f"{blocks:g}"


def _duration(seconds: float) -> str:
    if seconds >= 48 * 3600:
        return f"{seconds / 86400:.1f} d"
    return f"{seconds / 3600:.1f} h" if seconds >= 3600 else f"{seconds / 60:.0f} min"


def gain_by_capacity(table: pd.DataFrame, value: str = "hit_gain", ylabel: str = "") -> Figure:
    """Draw a gain over LRU against capacity in blocks (log), a line a policy, a panel a trace.

    Parameters
    ----------
    table : DataFrame
        Columns `policy`, `capacity` (blocks), `value` (a share of 1), and `trace` where
        there is more than one.
    ylabel : str
        What the gain is, in percent or percentage points.
    """
    traces = list(_by_trace(table))
    columns = min(2, len(traces))
    rows = -(-len(traces) // columns)
    figure, axes = plt.subplots(
        rows, columns, figsize=(4.4 * columns + 1.2, 3.4 * rows), squeeze=False
    )
    for axis, (trace, part) in zip(axes.flat, traces, strict=False):
        axis.axhline(0, color="#555555", linewidth=1, linestyle="-", marker="")
        for policy, line in part.groupby("policy", sort=False):
            axis.plot(line["capacity"], 100 * line[value], label=str(policy), **_spaced(len(line)))
        axis.set(xscale="log", xlabel="capacity (blocks)", title=trace or "")
        axis.xaxis.set_minor_formatter(NullFormatter())
    for axis in axes.flat[len(traces) :]:
        axis.set_axis_off()
    for axis in axes[:, 0]:
        axis.set_ylabel(ylabel)
    handles, labels = axes.flat[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right upper")
    return figure


def ablation_beside_study(table: pd.DataFrame) -> Figure:
    """Draw differences from LRU as dots, the study's as stars: hits left, prefill cost right.

    Bars of ours span all seeds.

    Parameters
    ----------
    table : DataFrame
        One row a policy and capacity: `policy`, `capacity` (blocks), `hit_gain` and
        `prefill_saving` with their `_min` and `_max`, `study_hit_gain`, `study_saving`
        (shares of 1, NaN unknown).
    """
    rows = np.arange(len(table))[::-1]
    figure, axes = plt.subplots(1, 2, sharey=True, figsize=(8.4, 0.34 * len(table) + 1.6))
    pairs = (("hit_gain", "study_hit_gain"), ("prefill_saving", "study_saving"))
    for axis, (ours, study) in zip(axes, pairs, strict=True):
        axis.axvline(0, color="#555555", linewidth=1)
        low, middle, high = (100 * table[f"{ours}{end}"] for end in ("_min", "", "_max"))
        style: dict[str, Any] = {"linestyle": "none", "marker": MARKERS[0], "color": COLORS[0]}
        axis.errorbar(middle, rows, xerr=[middle - low, high - middle], label="ours", **style)
        style = {"linestyle": "none", "marker": "*", "markersize": 10, "color": COLORS[1]}
        axis.plot(100 * table[study], rows, label="the study", **style)
    labels = [
        f"{policy}, {_short(size)}"
        for policy, size in zip(table["policy"], table["capacity"], strict=True)
    ]
    axes[0].set_yticks(rows, labels)
    axes[0].set_xlabel("hit ratio minus LRU (pp)")
    axes[1].set_xlabel("prefill cost saved over LRU (%)")
    handles, names = axes[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside upper right", ncols=2)
    return figure


def gain_by_setting(table: pd.DataFrame, setting: str, series: str, panel: str) -> Figure:
    """Draw the gain over LRU against a setting (even steps), a line a series, a panel each.

    Parameters
    ----------
    table : DataFrame
        Columns `hit_gain` (a share of 1), `setting` (values, drawn in the order of rows), `series`
        and `panel`.
    """
    panels = list(table.groupby(panel, sort=False))
    columns = 2 if len(panels) == 4 else min(3, len(panels))
    rows = -(-len(panels) // columns)
    figure, axes = plt.subplots(
        rows, columns, figsize=(2.9 * columns + 1.0, 2.7 * rows + 0.5), squeeze=False, sharey=True
    )
    for axis, (name, part) in zip(axes.flat, panels, strict=False):
        axis.axhline(0, color="#555555", linewidth=1, linestyle="-", marker="")
        values = list(dict.fromkeys(part[setting]))
        for label, line in part.groupby(series, sort=False):
            places = [values.index(value) for value in line[setting]]
            axis.plot(places, 100 * line["hit_gain"], label=_name(label))
        unit = " blocks" if panel == "capacity" else ""
        axis.set(xlabel=setting if unit else "", title=_name(name) + unit)
        axis.set_xticks(range(len(values)), [_name(value) for value in values])
    for axis in axes.flat[len(panels) :]:
        axis.set_axis_off()
    figure.supylabel("hit ratio minus LRU (pp)", fontsize=12)
    handles, labels = axes.flat[0].get_legend_handles_labels()
    title = "capacity (blocks)" if series == "capacity" else series
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), title=title)
    return figure


def _name(value: Any) -> str:
    return value if isinstance(value, str) else _short(value)


def headroom_closed(table: pd.DataFrame) -> Figure:
    """Draw the share of the headroom between LRU and OPT that policies close, a panel a trace.

    Parameters
    ----------
    table : DataFrame
        Columns `trace`, `policy`, `capacity` (blocks), `headroom_closed` (a share of 1; what is
        below -1 is drawn at the edge).
    """
    clipped = table.assign(headroom_closed=table["headroom_closed"].clip(lower=-1.0))
    figure = gain_by_capacity(clipped, "headroom_closed", "headroom closed (%)")
    for axis in figure.axes:
        axis.set_ylim(-105, 105)
    return figure
