"""What the results say together: regimes, the evidence for advice, and the study's claims."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from kvsim.analysis import regimes
from kvsim.analysis.averages import POINT, complete, mean_over
from kvsim.analysis.regimes import COMPULSORY, HEAVILY, MILDLY, REGIMES, TTL, regime
from kvsim.cache.capacity import parse
from kvsim.cache.policies import POLICIES
from kvsim.cache.sweep import simulate
from kvsim.experiments import ablation, belady, compare, gap, ttl
from kvsim.report import citations, published
from kvsim.report.results import load_table
from kvsim.traces.arrivals import arrange
from kvsim.traces.trace import Trace

OURS = ("liveness",)  # made on the traces of this book
NOT_MEASURED = "not measured here"
WITHOUT, WITH = "regime without a TTL", "regime with the TTL"


def of_trace(
    trace: Trace,
    capacities: Sequence[str | int],
    ttl_seconds: float = 300.0,
    window: float = 8 * 3600,
    seed: int = 0,
) -> pd.DataFrame:
    """Return LRU, OPT, LRU with the TTL and the regimes with and without it at each capacity.

    Parameters
    ----------
    trace : Trace
        The requests.
    capacities : sequence of str or int
        As `kvsim.cache.capacity.parse` takes them.
    ttl_seconds : float
        Seconds.
    window, seed : float, int
        Seconds and seed of the session starts, where the trace has sessions.
    """
    trace = arrange(trace, window, seed)
    infinite = trace.infinite_hit_blocks / trace.blocks
    rows = []
    for size in [parse(str(capacity), trace) for capacity in capacities]:
        lru, opt = (simulate(trace, policy, size) for policy in ("lru", "opt"))
        expiring = simulate(trace, "lru", size, ttl=ttl_seconds)
        expired, evicted = expiring.expired_blocks or 0, expiring.evicted_blocks or 0
        lru_ratio, opt_ratio, ttl_ratio = (
            float(run.hit_blocks.sum() / trace.blocks) for run in (lru, opt, expiring)
        )
        share = expired / (expired + evicted) if expired + evicted else 0.0
        rows.append((size, *_standing(lru_ratio, opt_ratio, ttl_ratio, infinite, share)))
    return pd.DataFrame(rows, columns=["capacity", *STANDING]).set_index("capacity").round(4)


STANDING = ("lru", "opt", "lru with the TTL", "removed by the TTL", WITHOUT, WITH)


def _standing(
    lru: float, opt: float, expiring: float, infinite: float, share: float
) -> tuple[float, float, float, float, str, str]:
    names = regime(lru, opt, infinite), regime(lru, opt, infinite, share)
    return (lru, opt, expiring, share, *names)


def committed(ttl_seconds: float = 300.0) -> pd.DataFrame:
    """Return `of_trace` for every trace with results, at the capacities of the TTL experiment.

    The optimum is read between the capacities of the Belady experiment (linear in their logarithm);
    both experiments use one seed.
    """
    cells = load_table("ttl", "cells")
    cells = cells[(cells["sample"] == ttl.ALL) & (cells["ttl_s"] == ttl_seconds)]
    bound = belady.as_ratios(load_table("belady", "bound"))
    parts = []
    for trace, part in cells.groupby("trace", sort=False):
        known = bound[(bound["trace"] == trace) & (bound["policy"] == "opt")]
        part = part.sort_values("capacity")
        opt = _between(part["capacity"], known)
        infinite = float(known.sort_values("capacity")["hit_ratio"].iloc[-1])
        ours = part[["lru_hit_ratio", "ttl_hit_ratio", "removed_by_ttl_share"]].fillna(0.0)
        rows = [
            (trace, capacity, *_standing(lru, best, expiring, infinite, share))
            for capacity, best, (lru, expiring, share) in zip(
                part["capacity"].tolist(), opt.tolist(), ours.to_numpy().tolist(), strict=True
            )
        ]
        parts.append(pd.DataFrame(rows, columns=["trace", "capacity", *STANDING]))
    return pd.concat(parts).set_index(["trace", "capacity"]).round(4)


def _between(capacity: pd.Series, known: pd.DataFrame) -> np.ndarray:
    """Return hit ratios at capacities, read between those of `known`."""
    known = known.sort_values("capacity")
    return np.interp(np.log(capacity), np.log(known["capacity"]), known["hit_ratio"])


def stretches(standing: pd.DataFrame) -> pd.DataFrame:
    """Return from which to which capacity each regime reaches, by trace, of `committed`.

    A row a trace and regime: the stretches of neighbouring capacities measured (blocks), without a
    TTL and with it.
    """
    rows = standing.reset_index()
    columns = {"without a TTL": WITHOUT, "with the TTL": WITH}
    found = {heading: _reaches(rows, column) for heading, column in columns.items()}
    order = {name: place for place, name in enumerate(REGIMES)}
    table = pd.DataFrame(found).fillna("").rename_axis(["trace", "regime"])
    return table.sort_index(key=lambda level: level.map(order) if level.name == "regime" else level)


def _reaches(rows: pd.DataFrame, column: str) -> pd.Series:
    """Return the stretches of capacities (ascending within a trace) of each value of a column."""
    stretch = rows.groupby("trace")[column].transform(
        lambda names: names.ne(names.shift()).cumsum()
    )
    ends = rows.groupby(["trace", column, stretch.rename("stretch")])["capacity"].agg(
        ["min", "max"]
    )
    shown = ends["min"].map("{:,}".format)
    shown = shown.where(ends["min"] == ends["max"], shown + " to " + ends["max"].map("{:,}".format))
    return shown.groupby(level=[0, 1]).agg("; ".join)


def advice() -> pd.DataFrame:
    """Return, for each regime, what helps, by how many points, and where that was measured.

    A row a regime and lever: `how to tell` (the rule in words), `lever`, `points` (gain in hit
    ratio: the mean over seeds, capacities and traces, and its range over the points of the regime),
    `evidence` (chapter and points counted, or `NOT_MEASURED`).
    """
    points = _points_of_compare()
    cells = load_table("compare", "cells")
    others = [name for name in compare.best_online(cells) if name not in OURS]
    how = regimes.describe()
    rows = [
        _unmeasured(COMPULSORY, "sharing prefixes between sessions, shorter prompts"),
        _measured(COMPULSORY, "any policy, at most (the optimum)", points, "opt"),
        *_space(MILDLY, points, others),
        *_space(HEAVILY, points, others),
        _unmeasured(HEAVILY, "admission control"),
        _unmeasured(HEAVILY, "another tier of memory"),
        _longer_ttl(),
        _more_memory_with_ttl(),
    ]
    table = pd.DataFrame(rows, columns=["regime", "lever", "points", "evidence"])
    table.insert(1, "how to tell", table["regime"].map(how))
    return table.set_index(["regime", "how to tell"])


Row = tuple[str, str, str, str]


def _space(name: str, points: pd.DataFrame, others: Sequence[str]) -> list[Row]:
    inside = points[points["regime"] == name]
    best = str(inside[list(others)].groupby("trace").mean().mean().idxmax()) if len(inside) else ""
    rows = [_measured(name, "twice the memory, LRU", points, "doubled")]
    rows += [_measured(name, f"{own} (ours, made on these traces)", points, own) for own in OURS]
    if best:
        rows.append(_measured(name, f"the best other policy in hindsight, {best}", points, best))
    return [*rows, _measured(name, "any policy, at most (the optimum)", points, "opt")]


def _points_of_compare() -> pd.DataFrame:
    """Return a row a point of the comparison: its regime and each policy's gain in points."""
    cells = load_table("compare", "cells")
    kept, _ = complete(cells)
    gains = mean_over(kept, ["gain_pp"], by=(*POINT, "policy"))["gain_pp"].unstack("policy")
    lru = mean_over(kept[kept["policy"] == "lru"], ["hit_ratio"], by=POINT)["hit_ratio"]
    bound = belady.as_ratios(load_table("belady", "bound"))
    curves = {trace: part[part["policy"] == "lru"] for trace, part in bound.groupby("trace")}
    doubled, names = [], []
    for trace, capacity, ratio in lru.reset_index().itertuples(index=False):
        curve = curves[trace]
        once, twice = _between(pd.Series([capacity, 2 * capacity]), curve)
        infinite = float(curve["hit_ratio"].max())
        doubled.append(100 * (twice - once))
        names.append(regime(ratio, ratio + gains["opt"][trace, capacity] / 100, infinite))
    return gains.assign(doubled=doubled, regime=names)


def _measured(name: str, lever: str, points: pd.DataFrame, column: str) -> Row:
    gain = points.loc[points["regime"] == name, column]
    chapter = "Belady" if column == "doubled" else "every policy"
    return (name, lever, *_told(gain, chapter))


def _told(gain: pd.Series, chapter: str) -> tuple[str, str]:
    """Return mean and range of gains (index: trace, capacity), and where they were measured."""
    if gain.empty:
        return "", NOT_MEASURED
    mean = mean_over(gain.rename("gain").reset_index().assign(all=""), ["gain"], by=("all",))
    traces = gain.index.get_level_values("trace").nunique()
    counted = f"{chapter}: {len(gain)} points of {traces} trace{'' if traces == 1 else 's'}"
    low, high = (_signed(value) for value in (gain.min(), gain.max()))
    return f"{_signed(mean['gain'].iloc[0])} ({low} to {high})", counted


def _signed(points: float) -> str:
    return f"{round(points, 1) + 0.0:+.1f}"  # adding 0 turns -0.0 into 0.0


def _unmeasured(name: str, lever: str) -> Row:
    return name, lever, "", NOT_MEASURED


def _longer_ttl() -> Row:
    bound = _bound_by_ttl()
    gain = 100 * (bound["lru"] - bound["lru with the TTL"])
    return (TTL, "no TTL, or a longer one: at most", *_told(gain, "TTL"))


def _more_memory_with_ttl() -> Row:
    bound = _bound_by_ttl()
    most = bound.groupby("trace")["lru with the TTL"].transform("max")
    gain = 100 * (most - bound["lru with the TTL"])
    return (TTL, "all the memory one could want, same TTL", *_told(gain, "TTL"))


def _bound_by_ttl() -> pd.DataFrame:
    standing = committed()
    return standing[standing[WITH] == TTL]


def claims() -> pd.DataFrame:
    """Return every claim of the study and objection of its readers with our figure and verdict."""
    cells = load_table("compare", "cells")
    told = compare.headline(cells)
    slips = load_table("belady", "slips")
    counts = belady.slip_counts(slips)
    ttls = ttl.headline(load_table("ttl", "cells"))
    gaps = gap.short_gaps(load_table("gap", "bygap").query("policy == 'lru'"))
    study = ablation.beside_study(load_table("ablation", "cells").query("trace == 'weka'"))
    alone = belady.effects_of_runs(slips).query("slip == 'no pin'")
    large = cells[cells["capacity"] > cells.groupby("trace")["capacity"].transform("median")]
    overtaking = compare.against_lru(complete(compare.online(large))[0])
    overtaking = overtaking[overtaking["won"] > 0]
    cited, works = citations.counted()
    names = sorted(cells["trace"].unique())
    silent = [name for name in names if ttls[f"{name}_silent"]]
    rows = [
        (
            "LRU is hard to beat",
            f"{told['lose_more']} of {told['online']} online policies lose more points (trace, "
            f"capacity) than they win; best: {told['best_online']}, mean gain "
            f"{told['best_gain']} points",
            f"{told['traces']} traces",
            "holds for most rules, not for all",
        ),
        (
            "LRU is near what can be had (implied)",
            _headroom(cells),
            f"{told['traces']} traces, {told['capacities']} capacities each",
            "does not hold where capacity is scarce",
        ),
        (
            "H, C and G all lose",
            f"signs agree in {ablation.agreement(study)['hit_agreement']} cells of 40 sessions; "
            f"over the whole range hcg gains {_range(cells, 'hcg')} points",
            "weka",
            "holds in the study's regime, not in every regime",
        ),
        (
            "A 5-minute TTL never fires under capacity pressure",
            "never fires at "
            + ", ".join(
                f"{ttls[f'{trace}_silent']} of {ttls[f'{trace}_cells']} capacities ({trace})"
                for trace in names
            ),
            f"{told['traces']} traces",
            f"holds for small caches of {', '.join(silent) or 'no trace'} only",
        ),
        (
            "A third of recompute follows gaps under 10 s (open question 3)",
            f"at most {gaps['weka_short_most']} of recomputed tokens, {gaps['weka_short_40k']} at "
            f"{published.STUDY_BLOCKS:,} blocks",
            "weka",
            "does not hold here",
        ),
        (
            "Unpinned Belady loses to LRU: it eats the prefix being built",
            f"not pinning alone changes Belady by {alone['change_pp'].min():+.2f} to "
            f"{alone['change_pp'].max():+.2f} points; {counts['slip_caught']} of "
            f"{counts['slip_runs']} slipped runs ({counts['slip_caught_distinct']} of "
            f"{counts['slip_runs_distinct']} outcomes) lose to LRU",
            f"{slips['trace'].nunique()} traces",
            "only together with another slip",
        ),
        (
            "Objection: references are missing",
            f"{cited} of {len(POLICIES)} policies cite their source, {works} works in all; the "
            f"others are classics: {', '.join(citations.NO_SOURCE)}",
            "",
            "answered",
        ),
        (
            "Objection: known policies are ignored",
            f"{cells['policy'].nunique() - 1} policies compared",
            f"{told['traces']} traces",
            "answered",
        ),
        (
            "Objection: there is no bound",
            "exact optimum at every capacity compared",
            f"{told['traces']} traces",
            "answered",
        ),
        (
            "Objection: sizes are too small for a TTL to fire",
            _firing(ttls, names),
            f"{told['traces']} traces",
            "right: it fires on these corpora",
        ),
        (
            "Objection: at larger sizes other policies overtake LRU",
            f"{len(overtaking)} of {told['online']} online policies win points above the median "
            f"capacity; the best run wins {overtaking['best_pp'].max():.2f} points",
            f"{told['traces']} traces",
            "right for some",
        ),
        ("Objection: tiers are left out", NOT_MEASURED + ": one tier", "", "open"),
    ]
    columns = ["claim", "our figure", "trace", "verdict"]
    return pd.DataFrame(rows, columns=columns).set_index("claim")


def _firing(ttls: Mapping[str, Any], traces: Sequence[str]) -> str:
    told = [f"{ttls[f'{t}_differs']} of {ttls[f'{t}_cells']} ({t})" for t in traces]
    return "a 5-minute TTL costs hits at " + ", ".join(told) + " capacities"


def _range(cells: pd.DataFrame, policy: str) -> str:
    gains = cells[(cells["policy"] == policy) & (cells["trace"] == "weka")]["gain_pp"]
    return f"{gains.min():+.1f} to {gains.max():+.1f}"


def _headroom(cells: pd.DataFrame) -> str:
    bound = cells[cells["policy"] == "opt"]
    most = mean_over(bound, ["gain_pp"], by=POINT)["gain_pp"].groupby("trace").max()
    return "headroom up to " + ", ".join(f"{value:.1f} ({name})" for name, value in most.items())


def words(ttl_seconds: float = 300.0) -> dict[str, object]:
    """Return the rule and its constants, as the prose names them."""
    how = regimes.describe()
    return {
        "ttl": f"{ttl_seconds:g}",
        "rule_compulsory": how[COMPULSORY],
        "rule_mild": how[MILDLY],
        "rule_heavy": how[HEAVILY],
        "rule_ttl": how[TTL],
    }
