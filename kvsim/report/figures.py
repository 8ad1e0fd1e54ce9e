"""Figures: each function takes a tidy table and returns its panels, a Matplotlib figure each.

A page puts panels side by side or, on a phone, below each other, so that no panel's text shrinks.
"""

import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
from matplotlib.ticker import FuncFormatter, NullFormatter

from kvsim.report.words import value_words

# Okabe and Ito's hues, which colour-blind readers tell apart, darkened until text in them reads on
# white. Dashes and markers tell the lines apart in grey as well.
COLORS = ("#0072B2", "#B84A00", "#007A5A", "#A3447F", "#3B82A8", "#8F6A00", "#000000")
DASHES = ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (1, 1)))
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
HATCHES = ("", "//", "", "..", "", "xx")
GREY = "#9a9a9a"
ZERO: dict[str, Any] = {"color": "#555555", "linewidth": 1, "linestyle": "-", "marker": ""}

# Few enough markers to tell lines apart on a dense curve: a share of the panel's diagonal.
SPACED: dict[str, Any] = {"markevery": 0.15}

HIGHLIGHTED = 4  # lines a panel; the others are grey
# Text of 12 points is 16 pixels at a panel's own size and 11 where a phone shows a single one.
PANEL = (4.4, 3.3)
SINGLE = (5.2, 3.6)
LABEL = 26  # letters a line of a label beside a bar

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
    "axes.unicode_minus": True,
    "figure.constrained_layout.use": True,
    # Opaque white, also where the page is dark: the book's style sheet inverts the lightness there,
    # and everywhere else a white card stays readable.
    "figure.facecolor": "white",
    "figure.figsize": SINGLE,
    "figure.dpi": 110,
    "font.size": 12,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.8,
    "legend.frameon": False,
    "lines.linewidth": 1.8,
    "lines.markersize": 5,
    "savefig.dpi": 110,
    "svg.fonttype": "none",  # text stays text: small, and it can be searched and measured
    "svg.hashsalt": "kvsim",
}


def use_style() -> None:
    """Set Matplotlib's defaults to those of the book, from Matplotlib's own defaults."""
    mpl.rcdefaults()
    mpl.rcParams.update(STYLE)


def hit_ratio_by_capacity(
    table: pd.DataFrame,
    series: str = "policy",
    value: str = "hit_ratio",
    highlight: Sequence[str] = (),
) -> list[Figure]:
    """Draw hit ratio against capacity in blocks (log), a line a series, a panel a trace.

    Parameters
    ----------
    table : DataFrame
        Columns `capacity` (blocks), `value` (a share of 1), `series`, and `trace`
        where there is more than one.
    highlight : sequence of str
        At most four series in colour, the others grey; the first four if empty.
    """
    panels = []
    chosen = _chosen(table[series], highlight)
    for trace, part in _by_trace(table[table["capacity"] > 0]):
        figure, axis = plt.subplots(figsize=PANEL)
        _lines(axis, part.sort_values("capacity", kind="stable"), "capacity", value, series, chosen)
        axis.set_ylim(bottom=0)
        _capacities(axis, trace, "hit ratio (% of blocks)")
        _label_ends(axis)
        panels.append(figure)
    return panels


def _chosen(names: Iterable[Any], highlight: Sequence[str] = ()) -> dict[str, dict[str, Any]]:
    """Return the styles of the highlighted series by name: the same in every panel."""
    known = list(dict.fromkeys(str(name) for name in names))
    chosen = [name for name in highlight or known if name in known][:HIGHLIGHTED]
    styles = cycler(color=COLORS, linestyle=DASHES, marker=MARKERS)
    return dict(zip(chosen, styles, strict=False))


def _lines(
    axis: Axes,
    table: pd.DataFrame,
    x: str,
    y: str,
    series: str,
    chosen: Mapping[str, Mapping[str, Any]],
) -> None:
    """Draw a line a series: the chosen ones in their styles above the others in grey."""
    others = []
    for label, line in table.groupby(series, sort=False):
        name = _name(label)
        style = dict(chosen.get(str(label), {"color": GREY, "ls": "-", "marker": "", "lw": 1.0}))
        if str(label) in chosen:
            style |= {"label": name, "zorder": 3} | SPACED
        else:
            others.append(name)
        axis.plot(line[x], 100 * line[y], **style)
    if others:
        names = ", ".join(others) if len(others) <= 3 else f"{len(others)} others"
        axis.figure.supxlabel(f"grey: {names}", fontsize=12, color="#5c5c5c")


def _label_ends(axis: Axes) -> None:
    """Write each line's label beside its end, in its colour, moved apart where lines meet."""
    to_axes = axis.transData + axis.transAxes.inverted()
    ends = []
    for line in axis.get_lines():
        points = np.asarray(line.get_xydata())
        if len(points) and not str(line.get_label()).startswith("_"):
            ends.append((min(max(to_axes.transform(points[-1])[1], 0.0), 1.0), line))
    ends.sort(key=lambda end: end[0])
    height = 0.72 * 72 / axis.figure.dpi * axis.figure.bbox.height  # points, without title
    for place, (_, line) in zip(_apart([y for y, _ in ends], 15 / height), ends, strict=True):
        style: dict[str, Any] = {"transform": axis.transAxes, "va": "center"}
        axis.text(1.02, place, str(line.get_label()), color=line.get_color(), **style)


def _apart(places: Sequence[float], gap: float) -> list[float]:
    """Return rising places at least `gap` apart, none above 1 where there is room."""
    moved: list[float] = []
    for place in places:
        moved.append(max(place, moved[-1] + gap) if moved else place)
    above = 1.0 + gap
    for number in reversed(range(len(moved))):
        above = moved[number] = min(moved[number], above - gap)
    return moved


def _capacities(axis: Axes, title: str | None, ylabel: str) -> None:
    axis.set(xscale="log", xlabel="capacity (blocks)", ylabel=ylabel, title=title or "")
    _plain_numbers(axis)


def _plain_numbers(axis: Axes) -> None:
    """Write 10k for ten thousand: exponents would be too small to read on a phone."""
    axis.xaxis.set_major_formatter(FuncFormatter(lambda number, _: _short(number)))
    axis.xaxis.set_minor_formatter(NullFormatter())


def changes(
    table: pd.DataFrame, label: str, value: str, xlabel: str, top: int = 20
) -> list[Figure]:
    """Draw signed changes as horizontal bars, the most negative on top.

    Parameters
    ----------
    table : DataFrame
        One row a bar; `label` names it, `value` is its length.
    top : int
        Bars drawn.
    """
    rows = table.sort_values(value, kind="stable").head(top).iloc[::-1]
    labels = [textwrap.fill(str(text), LABEL) for text in rows[label]]
    heights = np.array([0.1 + 0.2 * (text.count("\n") + 1) for text in labels])  # inches
    figure, axis = plt.subplots(figsize=(SINGLE[0], heights.sum() + 0.8))
    colors = [COLORS[1] if change < 0 else COLORS[0] for change in rows[value]]
    places = np.cumsum(heights) - heights / 2
    axis.barh(places, rows[value], height=0.22, color=colors)
    axis.set_yticks(places, labels)
    axis.set_ylim(0, heights.sum())
    axis.grid(axis="y", visible=False)
    axis.axvline(0, **ZERO)
    figure.supxlabel(xlabel, fontsize=12)
    return [figure]


def log_histograms(
    table: pd.DataFrame, xlabel: str, marks: Mapping[str, float] | None = None
) -> list[Figure]:
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
    _plain_numbers(axis)
    axis.set_ylim(bottom=0)
    return _with_legend(figure, axis)


def ecdfs(
    table: pd.DataFrame,
    xlabel: str,
    marks: Mapping[str, float] | None = None,
    published: pd.DataFrame | None = None,
) -> list[Figure]:
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
            **SPACED,
        )
    if published is not None:
        for source, points in published.groupby("source", sort=False):
            style = {"color": COLORS[-1], "linestyle": "none", "marker": "*", "markersize": 11}
            axis.plot(points["value"], 100 * points["share"], label=str(source), **style)
    _mark(axis, marks or {})
    axis.set(xscale="log", xlabel=xlabel, ylabel="values at or below (%)", ylim=(0, 100))
    _plain_numbers(axis)
    return _with_legend(figure, axis)


def session_timelines(table: pd.DataFrame) -> list[Figure]:
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
    figure, axis = plt.subplots(figsize=(SINGLE[0], 0.7 * len(sessions) + 1.4))
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
    figure.legend(kinds.values(), kinds.keys(), loc="outside upper left", ncols=2)
    return [figure]


def working_sets(table: pd.DataFrame, marks: Mapping[str, float] | None = None) -> list[Figure]:
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
    _plain_numbers(axis)
    axis.yaxis.set_major_formatter(FuncFormatter(lambda number, _: _short(number)))
    return _with_legend(figure, axis)


def stacked_shares(table: pd.DataFrame, share: str, part: str, ylabel: str) -> list[Figure]:
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
    figure, axis = plt.subplots(figsize=(SINGLE[0], 4.4))
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
    figure.legend(handles[::-1], labels[::-1], loc="outside lower center", ncols=2)
    return [figure]


def ttl_beside_lru(table: pd.DataFrame) -> list[Figure]:
    """Draw LRU with TTLs beside LRU: hit ratio first, then the share of removals by the TTL.

    Parameters
    ----------
    table : DataFrame
        One sample of sessions: columns `ttl_s`, `capacity` (blocks), `lru_hit_ratio`,
        `ttl_hit_ratio`, `removed_by_ttl_share` (of 1).
    """
    (hits, hits_axis), (removals, removals_axis) = (plt.subplots(figsize=PANEL) for _ in range(2))
    lru = table.drop_duplicates("capacity").sort_values("capacity")
    style: dict[str, Any] = {"color": COLORS[-1], "ls": DASHES[0], "marker": ""}
    hits_axis.plot(lru["capacity"], 100 * lru["lru_hit_ratio"], label="LRU", **style)
    for number, (ttl, part) in enumerate(table.groupby("ttl_s")):
        style = {"color": COLORS[number], "ls": DASHES[number + 1], "marker": MARKERS[number]}
        style |= {"label": f"TTL-{ttl:.0f}", **SPACED}
        hits_axis.plot(part["capacity"], 100 * part["ttl_hit_ratio"], **style)
        removals_axis.plot(part["capacity"], 100 * part["removed_by_ttl_share"], **style)
    hits_axis.set_ylim(bottom=0)
    removals_axis.set_ylim(-3, 103)
    _capacities(hits_axis, "hits", "hit ratio (% of blocks)")
    _capacities(removals_axis, "removals", "removed by TTL (%)")
    _label_ends(hits_axis)
    _label_ends(removals_axis)
    return [hits, removals]


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


def _with_legend(figure: Figure, axis: Axes) -> list[Figure]:
    handles, labels = axis.get_legend_handles_labels()
    if labels:
        figure.legend(handles, labels, loc="outside lower center", ncols=2)
    return [figure]


def _short(blocks: float) -> str:
    if blocks >= 1e6:
        return f"{blocks / 1e6:.3g}M"
    return f"{blocks / 1e3:.3g}k" if blocks >= 1e3 else f"{blocks:g}"


def _duration(seconds: float) -> str:
    if seconds >= 48 * 3600:
        return f"{seconds / 86400:.1f} d"
    return f"{seconds / 3600:.1f} h" if seconds >= 3600 else f"{seconds / 60:.0f} min"


def gain_by_capacity(
    table: pd.DataFrame,
    value: str = "hit_gain",
    ylabel: str = "",
    highlight: Sequence[str] = (),
    limits: tuple[float, float] | None = None,
) -> list[Figure]:
    """Draw a gain over LRU against capacity in blocks (log), a line a policy, a panel a trace.

    Parameters
    ----------
    table : DataFrame
        Columns `policy`, `capacity` (blocks), `value` (a share of 1), and `trace` where
        there is more than one.
    ylabel : str
        What the gain is, in percent or points.
    highlight : sequence of str
        At most four policies in colour, the others grey; the first four if empty.
    limits : (float, float), optional
        Of the vertical axis, in hundredths of `value`.
    """
    panels = []
    chosen = _chosen(table["policy"], highlight)
    for trace, part in _by_trace(table):
        figure, axis = plt.subplots(figsize=PANEL)
        axis.axhline(0, **ZERO)
        _lines(axis, part, "capacity", value, "policy", chosen)
        if limits:
            axis.set_ylim(limits)
        _capacities(axis, trace, ylabel)
        _label_ends(axis)
        panels.append(figure)
    return panels


def ablation_beside_study(table: pd.DataFrame) -> list[Figure]:
    """Draw differences from LRU as dots, the study's as stars: hits first, then prefill cost.

    Bars of ours span all seeds.

    Parameters
    ----------
    table : DataFrame
        One row a policy and capacity: `policy`, `capacity` (blocks), `hit_gain` and
        `prefill_saving` with their `_min` and `_max`, `study_hit_gain`, `study_saving`
        (shares of 1, NaN unknown).
    """
    rows = np.arange(len(table))[::-1]
    labels = [
        f"{policy}, {_short(size)}"
        for policy, size in zip(table["policy"], table["capacity"], strict=True)
    ]
    panels = []
    for ours, study, xlabel in (
        ("hit_gain", "study_hit_gain", "hit ratio minus LRU (points)"),
        ("prefill_saving", "study_saving", "prefill cost saved over LRU (%)"),
    ):
        figure, axis = plt.subplots(figsize=(PANEL[0], 0.3 * len(table) + 1.3))
        axis.axvline(0, **ZERO)
        low, middle, high = (100 * table[f"{ours}{end}"] for end in ("_min", "", "_max"))
        style: dict[str, Any] = {"linestyle": "none", "marker": MARKERS[0], "color": COLORS[0]}
        axis.errorbar(middle, rows, xerr=[middle - low, high - middle], label="ours", **style)
        style = {"linestyle": "none", "marker": "*", "markersize": 10, "color": COLORS[1]}
        axis.plot(100 * table[study], rows, label="the study", **style)
        axis.set_yticks(rows, labels)
        axis.set_xlabel(xlabel)
        handles, names = axis.get_legend_handles_labels()
        figure.legend(handles, names, loc="outside upper right", ncols=2)
        panels.append(figure)
    return panels


def gain_by_setting(table: pd.DataFrame, setting: str, series: str, panel: str) -> list[Figure]:
    """Draw the gain over LRU against a setting (even steps), a line a series, a panel each.

    Parameters
    ----------
    table : DataFrame
        Columns `hit_gain` (a share of 1), `setting` (values, drawn in the order of rows), `series`
        and `panel`.
    """
    panels = []
    chosen = _chosen(table[series])
    for name, part in table.groupby(panel, sort=False):
        figure, axis = plt.subplots(figsize=PANEL)
        axis.axhline(0, **ZERO)
        values = list(dict.fromkeys(part[setting]))
        placed = part.assign(place=[values.index(value) for value in part[setting]])
        _lines(axis, placed, "place", "hit_gain", series, chosen)
        unit = " blocks" if panel == "capacity" else ""
        axis.set(xlabel=setting, ylabel="hit ratio minus LRU (points)", title=_name(name) + unit)
        axis.set_xticks(range(len(values)), [_name(value) for value in values])
        _label_ends(axis)
        panels.append(figure)
    return panels


def _name(value: Any) -> str:
    return value_words(value) if isinstance(value, str) else _short(value)


def headroom_closed(table: pd.DataFrame, highlight: Sequence[str] = ()) -> list[Figure]:
    """Draw the share of the headroom between LRU and OPT that policies close, a panel a trace.

    Parameters
    ----------
    table : DataFrame
        Columns `trace`, `policy`, `capacity` (blocks), `headroom_closed` (a share of 1; what is
        below -1 is drawn at the edge).
    highlight : sequence of str
        At most four policies in colour, the others grey; the first four if empty.
    """
    clipped = table.assign(headroom_closed=table["headroom_closed"].clip(lower=-1.0))
    return gain_by_capacity(
        clipped, "headroom_closed", "headroom closed (%)", highlight, limits=(-105, 105)
    )
