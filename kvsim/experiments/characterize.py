"""Characterization: sessions in time, chains, sharing and working sets of a trace."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from kvsim.analysis import gaps
from kvsim.analysis.modality import silverman, supported_modes
from kvsim.analysis.workingset import sharing, working_set
from kvsim.experiments.plain import count, figure, fine_percent, label, lay_out, percent
from kvsim.experiments.store import Experiment
from kvsim.report import published
from kvsim.report.results import Tables
from kvsim.traces.arrivals import arrange
from kvsim.traces.trace import Trace

LEVELS = {"p10": 0.1, "p25": 0.25, "p50": 0.5, "p75": 0.75, "p90": 0.9, "p99": 0.99, "max": 1.0}
WINDOWS = (1, 3, 10, 30, 60, 180, 300, 600, 1800, 3600, 7200, 14_400, 28_800, 86_400)  # seconds
BINS_PER_DECADE = 10
ECDF_POINTS = 200
SPREAD = (0.1, 0.3, 0.5, 0.7, 0.9)  # of the sessions by duty, shown in the timeline
MOST_MODES = 4


def tables(
    trace: Trace,
    window: float = 8 * 3600,
    seed: int = 0,
    windows: Sequence[float] = WINDOWS,
    draws: int = 300,
) -> Tables:
    """Return what a trace looks like before any cache is simulated.

    Parameters
    ----------
    trace : Trace
        The requests.
    window, seed : float, int
        Seconds and seed of the session starts, where the trace has sessions; only
        the working set depends on them. The seed also draws the bootstrap.
    windows : sequence of float
        Windows of the working set in seconds.
    draws : int
        Bootstrap samples of the test for modes.

    Returns
    -------
    dict of DataFrame
        ``quantiles``, ``shares``, ``published`` (ours beside others'), ``modes``, ``histogram``,
        ``ecdf``, ``timeline``, ``workingset``.
    """
    sessions = gaps.sessions(trace)
    observed = _observed(trace, sessions)
    quantiles, shares = _quantiles(observed), _shares(trace, sessions)
    return {
        "quantiles": quantiles,
        "shares": shares,
        "published": _beside_published(quantiles, shares),
        "modes": _modes(observed, draws, seed),
        "histogram": _histograms(observed),
        "ecdf": _ecdfs(observed),
        "timeline": _timeline(trace, sessions),
        "workingset": _working_sets(arrange(trace, window, seed), windows),
    }


def _observed(trace: Trace, sessions: pd.DataFrame) -> dict[str, np.ndarray]:
    """Return every quantity of the tables: its known values, named with their unit."""
    gap, idle = gaps.gap(trace), gaps.idle(trace)
    return {
        "gap_s": gap[~np.isnan(gap)],
        "idle_s": np.maximum(idle[~np.isnan(idle)], 0.0),
        "service_s": trace.service[~np.isnan(trace.service)],
        "span_h": sessions["span_s"].to_numpy() / 3600,
        "duty_share": sessions["duty_low"].dropna().to_numpy(),
        "duty_high_share": sessions["duty_high"].dropna().to_numpy(),
        "session_requests": sessions["requests"].to_numpy(),
        "input_tokens": trace.input_tokens,
        "output_tokens": trace.output_tokens,
        "chain_blocks": trace.chain_blocks,
        "new_blocks": trace.chain_blocks - trace.seen_blocks,
    }


def _quantiles(observed: Mapping[str, np.ndarray]) -> pd.DataFrame:
    rows = []
    for quantity, values in observed.items():
        row = {"quantity": quantity, "values": len(values)}
        measured = (
            [values.mean(), *np.quantile(values, list(LEVELS.values()))] if len(values) else []
        )
        for name, value in zip(("mean", *LEVELS), measured or [np.nan] * 8, strict=True):
            row[name] = round(float(value), 6 if quantity.endswith("share") else 3)
        rows.append(row)
    return pd.DataFrame(rows)


def _shares(trace: Trace, sessions: pd.DataFrame) -> pd.DataFrame:
    gap, idle = gaps.gap(trace), gaps.idle(trace)
    gap, idle = gap[~np.isnan(gap)], idle[~np.isnan(idle)]
    duty = sessions.dropna(subset="duty_low")
    shared = sharing(trace)
    rows: dict[str, tuple[float | None, int]] = {
        "gap_over_60_s_share": (np.sum(gap > 60), len(gap)),
        "gap_over_3600_s_share": (np.sum(gap > 3600), len(gap)),
        "gap_exactly_10_s_share": (np.sum(gap == 10), len(gap)),
        "idle_floored_share": (np.sum(idle < 0), len(idle)),
        "below_half_share": (np.sum(duty["duty_low"] < 0.5), len(duty)),
        "below_half_high_share": (np.sum(duty["duty_high"] < 0.5), len(duty)),
        "untimed_share": (np.isnan(trace.service).sum(), trace.requests),
        "subagent_share": (trace.subagent.sum(), trace.requests),
        "seen_blocks_share": (trace.infinite_hit_blocks, trace.blocks),
        "shared_blocks_share": (shared["shared_blocks"], trace.distinct_blocks),
        "other_session_share": (shared["accesses_after_another"], trace.infinite_hit_blocks),
    }
    table = pd.DataFrame(
        [{"quantity": name, "count": part, "of": whole} for name, (part, whole) in rows.items()]
    )
    table["count"] = table["count"].astype("Int64").where(table["of"] > 0)
    table["share"] = (table["count"].astype("Float64") / table["of"].replace(0, np.nan)).round(6)
    return table


def _beside_published(quantiles: pd.DataFrame, shares: pd.DataFrame) -> pd.DataFrame:
    ours = dict(zip(shares["quantity"], shares["share"], strict=True))
    for row in quantiles.to_dict("records"):
        name, unit = str(row["quantity"]).rsplit("_", 1)
        ours |= {f"{name}_{level}_{unit}": row[level] for level in LEVELS}
    rows = [
        {
            "quantity": figure.quantity,
            "ours": ours[figure.quantity],
            "published": figure.value,
            "source": figure.source,
        }
        for figure in published.CHARACTERIZATION
    ]
    return pd.DataFrame(rows).astype({"ours": "Float64"})


def _modes(observed: Mapping[str, np.ndarray], draws: int, seed: int) -> pd.DataFrame:
    parts = []
    for quantity in ("gap_s", "idle_s"):
        positive = observed[quantity][observed[quantity] > 0]
        test = silverman(np.log(positive), MOST_MODES, draws=draws, seed=seed)
        test["at"] = [" ".join(f"{second:.3g}" for second in np.exp(at)) for at in test["at"]]
        parts.append(test.round(4).assign(quantity=quantity, values=len(positive)))
    table = pd.concat(parts, ignore_index=True)
    return table[["quantity", "values", *table.columns.drop(["quantity", "values"])]]


def _histograms(observed: Mapping[str, np.ndarray]) -> pd.DataFrame:
    """Count values in bins of equal width on a log scale; values of 0 have none."""
    rows = []
    for quantity, values in observed.items():
        positive = values[values > 0]
        if not len(positive):
            continue
        first, last = np.floor(np.log10([positive.min(), positive.max()]) * BINS_PER_DECADE)
        exponents = np.arange(first, last + 2) / BINS_PER_DECADE
        counts, _ = np.histogram(np.log10(positive), exponents)
        for low, high, number in zip(exponents[:-1], exponents[1:], counts, strict=True):
            bounds = {"low": float(f"{10**low:.6g}"), "high": float(f"{10**high:.6g}")}
            rows.append({"quantity": quantity, **bounds, "count": int(number)})
    return pd.DataFrame(rows, columns=["quantity", "low", "high", "count"])


def _ecdfs(observed: Mapping[str, np.ndarray]) -> pd.DataFrame:
    levels = np.linspace(0, 1, ECDF_POINTS + 1)
    parts = [
        pd.DataFrame(
            {
                "quantity": quantity,
                "value": np.quantile(values, levels, method="inverted_cdf").round(6),
                "share": levels.round(6),
            }
        )
        for quantity, values in observed.items()
        if len(values)
    ]
    return pd.concat(parts, ignore_index=True)


def _timeline(trace: Trace, sessions: pd.DataFrame) -> pd.DataFrame:
    """Return the requests of a few sessions, from the idlest to the busiest."""
    by_duty = sessions.dropna(subset="duty_low").sort_values("duty_low", kind="stable")
    columns = ["session", "duty", "span_s", "start_s", "service_s", "subagent"]
    parts = [pd.DataFrame(columns=columns)]
    places = sorted({int(level * len(by_duty)) for level in SPREAD}) if len(by_duty) else []
    for session, facts in by_duty.iloc[places].iterrows():
        rows = trace.session == session
        shown = {
            "session": session,
            "duty": round(facts["duty_low"], 6),
            "span_s": round(facts["span_s"], 3),
            "start_s": np.round(trace.arrival[rows] - facts["first_s"], 3),
            "service_s": np.round(trace.service[rows], 3),
            "subagent": trace.subagent[rows],
        }
        parts.append(pd.DataFrame(shown))
    return pd.concat(parts[1:] or parts, ignore_index=True)


def _working_sets(trace: Trace, windows: Sequence[float]) -> pd.DataFrame:
    table = working_set(trace, np.array(windows, dtype=np.float64))
    table["distinct_share"] = (table["blocks"] / (trace.distinct_blocks or np.nan)).round(6)
    return table.rename(columns={"window": "window_s"}).round({"blocks": 3, "tokens": 1})


def text(trace: str, tables: Tables) -> str:
    """Return the readable report of one trace."""
    levels = {level: (level, figure) for level in ("mean", *LEVELS)}
    quantity = {"quantity": ("quantity", label)}
    comparison = tables["published"]
    return "\n".join(
        [
            lay_out(tables["quantiles"], quantity | {"values": ("values", count)} | levels),
            "",
            lay_out(
                tables["shares"],
                quantity
                | {"count": ("count", count), "of": ("of", count)}
                | {"share": ("share", fine_percent)},
            ),
            "",
            "Beside published figures, which describe other corpora:",
            "",
            lay_out(
                comparison,
                quantity
                | {"ours": ("ours", figure), "published": ("published", figure)}
                | {"source": ("source", label)},
            ),
            "",
            *(modes_in_words(tables["modes"], name) for name in ("gap_s", "idle_s")),
            "",
            lay_out(
                tables["modes"],
                quantity
                | {"modes": ("modes <=", count), "bandwidth": ("critical bandwidth", figure)}
                | {"p_value": ("p", figure), "at": ("modes at (s)", label)}
                | {"smallest_peak": ("smallest/highest peak", percent)}
                | {"deepest_valley": ("valley/lower peak", percent)},
            ),
            "",
            "Mean working set (Denning) by window:",
            "",
            lay_out(
                tables["workingset"],
                {
                    "window_s": ("window (s)", count),
                    "blocks": ("blocks", count),
                    "tokens": ("tokens", count),
                    "distinct_share": ("of distinct blocks", fine_percent),
                },
            ),
        ]
    )


def modes_in_words(modes: pd.DataFrame, quantity: str) -> str:
    """Return what Silverman's test says about a quantity's modes on a log scale."""
    test = modes[modes["quantity"] == quantity]
    if not test["p_value"].notna().any():
        return f"Modes of log {quantity}: no data."
    two = test[test["modes"] == 2].iloc[0]
    number = supported_modes(test)
    verdict = f"{number} or fewer not rejected" if number else f"more than {len(test)} by the test"
    p_values = ", ".join(f"<= {row.modes}: p = {row.p_value:.3f}" for row in test.itertuples())
    return (
        f"Modes of log {quantity} (Silverman's test on {two['values']:,} values): {verdict} "
        f"({p_values}). With two, the second peak is {percent(two['smallest_peak'])} as high as "
        f"the first and the valley {percent(two['deepest_valley'])} as high as the second."
    )


def mode_words(modes: pd.DataFrame) -> dict[str, object]:
    """Return what Silverman's test decides for each trace and quantity, and the peaks' sizes.

    Keys are ``<trace>_<quantity>`` with ``_modes`` (the verdict), ``_p`` (of one mode), ``_second``
    (height of the second peak of two, of the first's), ``_valley`` (between them, of the
    second's) and ``_values``.
    """
    told: dict[str, object] = {}
    for (trace, quantity), test in modes[modes["p_value"].notna()].groupby(["trace", "quantity"]):
        number, name = supported_modes(test), f"{trace}_{quantity}"
        most = int(test["modes"].max())
        two = test[test["modes"] == 2].iloc[0]
        told[f"{name}_modes"] = (
            f"does not reject {number}" if number else f"rejects every number up to {most}"
        )
        told[f"{name}_p"] = f"{test[test['modes'] == 1]['p_value'].iloc[0]:.2g}"
        told[f"{name}_second"] = percent(two["smallest_peak"])
        told[f"{name}_valley"] = percent(two["deepest_valley"])
        told[f"{name}_values"] = f"{int(two['values']):,}"
    return told


def gap_words(quantiles: pd.DataFrame) -> dict[str, object]:
    """Return the study's median gap, and how many times that those of the traces are."""
    study = next(row.value for row in published.CHARACTERIZATION if row.quantity == "gap_p50_s")
    gaps_of = quantiles[quantiles["quantity"] == "gap_s"].dropna(subset="p50")
    told: dict[str, object] = {"study_gap_s": f"{study:g}"}
    for trace, median in zip(gaps_of["trace"], gaps_of["p50"].tolist(), strict=True):
        told[f"{trace}_gap_factor"] = f"{median / study:.1f}"
    return told


def without_sessions(quantiles: pd.DataFrame) -> str:
    """Return the traces that have no gaps, because they have no sessions."""
    gaps_of = quantiles[quantiles["quantity"] == "gap_s"]
    return ", ".join(gaps_of.loc[gaps_of["values"] == 0, "trace"]) or "none"


def beside_published(table: pd.DataFrame, traces: Sequence[str]) -> pd.DataFrame:
    """Return published figures and ours beside them: a row a figure, a column a trace."""
    rows = table[table["trace"].isin(traces)]
    ours = rows.pivot_table(
        index=["quantity", "source", "published"], columns="trace", values="ours", sort=False
    )
    return ours[list(traces)].reset_index().rename_axis(columns=None)


def modes_by_trace(modes: pd.DataFrame) -> pd.DataFrame:
    """Return the test for modes of the gaps and idle times, for the traces that have them."""
    known = modes[modes["p_value"].notna()]
    return known.set_index(["trace", "quantity", "modes"])


EXPERIMENT = Experiment(
    2, "characterize", "Characterization: sessions, gaps, chains, working sets", tables, text
)
