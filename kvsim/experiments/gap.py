"""Gap analysis: where recompute comes from, by the gap before the request and by a block's age."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from os import cpu_count

import numpy as np
import pandas as pd

from kvsim.analysis.gaps import BUCKETS, FIRST_REQUEST, by_age, by_gap, recomputed_tokens
from kvsim.cache.capacity import parse
from kvsim.cache.result import Result
from kvsim.cache.sweep import simulate
from kvsim.experiments.plain import NO_DATA, count, label, lay_out, percent
from kvsim.experiments.store import Experiment
from kvsim.report import published
from kvsim.report.results import Tables
from kvsim.traces.arrivals import arrange
from kvsim.traces.trace import Trace

POLICIES = ("lru", "lfu", "opt")
CAPACITIES = (
    "0.5%",
    "1%",
    "2%",
    "5%",
    "10%",
    "20%",
    "50%",
    "8k",
    "20k",
    "40k",
    "50k",
    "100k",
    "inf",
)
SEEDS = (0, 1, 2, 3, 4)
OVER_5_MIN = BUCKETS[3:]
CLOSE = 0.05  # of a share: within this we call ours close to a published one
SETUPS = {
    "requests": "as many requests, the study's blocks",
    "pressure": "as many requests, the study's blocks per distinct token",
    "contexts": "as many requests, the study's blocks per token of the sessions' longest chains",
    "working set": "as many distinct tokens, the study's blocks",
}


def tables(
    trace: Trace,
    window: float = 8 * 3600,
    seed: int = 0,
    policies: Sequence[str] = POLICIES,
    capacities: Sequence[str | int] = CAPACITIES,
    seeds: Sequence[int] = SEEDS,
    blocks: int = published.STUDY_BLOCKS,
) -> Tables:
    """Return what each policy prefills and recomputes, and why.

    Parameters
    ----------
    trace : Trace
        The requests.
    window, seed : float, int
        Seconds and seed of the session starts, where the trace has sessions.
    policies : sequence of str
        Policies and bounds.
    capacities : sequence of str or int
        As `kvsim.cache.capacity.parse` takes them; those beyond the distinct blocks are left out.
    seeds : sequence of int
        Of session samples and starts in the study's set-up rebuilt.
    blocks : int
        Capacity of that set-up and of the contrast, in blocks.

    Returns
    -------
    dict of DataFrame
        ``bygap``, ``byage`` (see `kvsim.analysis.gaps`), ``headline`` (the study's set-up
        rebuilt, one row a bucket, set-up and seed), ``contrast`` (shares that look alike and
        are not).
    """
    arranged = arrange(trace, window, seed)
    sizes = sorted({parse(str(size), trace) for size in capacities})
    sizes = [size for size in sizes if size <= trace.distinct_blocks]
    cells = [(policy, size) for policy in policies for size in sizes]
    with ThreadPoolExecutor(cpu_count()) as pool:
        runs = list(pool.map(lambda cell: simulate(arranged, *cell), cells))
    return {
        "bygap": pd.concat([_labelled(by_gap(arranged, run), run) for run in runs]),
        "byage": pd.concat([_labelled(by_age(arranged, run), run) for run in runs]),
        "headline": pd.DataFrame(
            list(_headline(trace, window, seeds, blocks)), columns=list(HEADLINE_COLUMNS)
        ),
        "contrast": _contrast(arranged, blocks),
    }


def _labelled(table: pd.DataFrame, run: Result) -> pd.DataFrame:
    table.insert(0, "policy", run.policy)
    table.insert(1, "capacity", run.capacity)
    return table.round(6)


HEADLINE_COLUMNS = (
    *("setup", "seed", "sessions", "requests", "distinct_tokens", "capacity", "hit_ratio"),
    *("gap", "prefilled_tokens_share", "recomputed_tokens_share", "recomputing_requests_share"),
)


def _headline(
    trace: Trace, window: float, seeds: Sequence[int], blocks: int
) -> Iterator[dict[str, object]]:
    """Yield the rows of the study's set-up, rebuilt in each of the ways of `SETUPS`."""
    if trace.sessions is None:
        return
    for setup in SETUPS:
        for seed in seeds:
            sample = _sampled(trace, setup, seed)
            if sample is None:
                continue
            distinct = int((sample.chain_tokens - sample.seen_tokens).sum())
            longest = pd.Series(sample.chain_tokens).groupby(sample.session).max()
            in_use = {"pressure": distinct, "contexts": int(longest.sum())}.get(setup)
            capacity = blocks
            if in_use is not None:
                capacity = round(blocks * in_use / published.STUDY_WORKING_SET_TOKENS)
            arranged = arrange(sample, window, seed)
            run = simulate(arranged, "lru", capacity)
            facts = {
                "setup": setup,
                "seed": seed,
                "sessions": sample.sessions,
                "requests": sample.requests,
                "distinct_tokens": distinct,
                "capacity": capacity,
                "hit_ratio": round(int(run.hit_blocks.sum()) / sample.blocks, 6),
            }
            for row in by_gap(arranged, run).round(6).to_dict("records"):
                yield {name: row[name] for name in HEADLINE_COLUMNS if name in row} | facts


def _sampled(trace: Trace, setup: str, seed: int) -> Trace | None:
    """Return sessions, in a seeded order, up to the study's requests or distinct tokens.

    None if the trace has too few.
    """
    known = np.unique(trace.session)
    drawn = np.random.default_rng(seed).permutation(known)
    if setup == "working set":
        # Sessions share few blocks or none, so that their distinct tokens add up.
        new = trace.chain_tokens - trace.seen_tokens
        goal = published.STUDY_WORKING_SET_TOKENS
    else:
        new = np.ones(trace.requests, dtype=np.int64)
        goal = published.STUDY_REQUESTS
    per_session = np.bincount(trace.session, weights=new)
    reached = np.cumsum(per_session[drawn])
    if reached[-1] < goal:
        return None
    kept = drawn[: int(np.argmax(reached >= goal)) + 1]
    return trace.select(np.isin(trace.session, kept))


def _contrast(trace: Trace, blocks: int) -> pd.DataFrame:
    """Return shares with their numerator, denominator and regime side by side."""
    ttl = simulate(trace, "lru", trace.distinct_blocks, ttl=published.PROVIDER_TTL)
    lru = simulate(trace, "lru", min(blocks, trace.distinct_blocks))
    rows = [
        *published.RECOMPUTE_SHARES,
        *_ours(trace, ttl, f"TTL {published.PROVIDER_TTL:.0f} s, no capacity limit"),
        *_ours(trace, lru, f"LRU, {blocks:,} blocks, no TTL"),
    ]
    return pd.DataFrame(rows).astype({"share": "float64"}).round(6)


def _ours(trace: Trace, run: Result, regime: str) -> list[published.RecomputeShare]:
    recomputed = int(recomputed_tokens(trace, run).sum())
    hit, inputs = int(run.hit_tokens.sum()), int(trace.input_tokens.sum())
    unblocked = int(trace.unblocked_tokens.sum())
    written = inputs - hit - unblocked
    write_price, read_price = published.CACHE_WRITE_PRICE, published.CACHE_READ_PRICE
    cost = write_price * written + read_price * hit + unblocked
    late = by_gap(trace, run).set_index("gap").loc[list(OVER_5_MIN)].sum(min_count=1)
    shares = [
        ("recomputed tokens", "tokens written", _ratio(recomputed, written)),
        (
            f"recomputed tokens at {write_price:g}",
            f"input cost: written {write_price:g}, read {read_price:g}, unblocked 1",
            _ratio(write_price * recomputed, cost),
        ),
        ("prefilled after gaps from 5 min", "prefilled tokens", late["prefilled_tokens_share"]),
        ("recomputed after gaps from 5 min", "recomputed tokens", late["recomputed_tokens_share"]),
    ]
    return [
        published.RecomputeShare("ours", numerator, denominator, regime, share)
        for numerator, denominator, share in shares
    ]


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else np.nan


def text(trace: str, tables: Tables) -> str:
    """Return the readable report of one trace."""
    lines = []
    for table, row, what in (
        (tables["bygap"], "gap", "the gap before the request"),
        (tables["byage"], "age", "the time since the block was last asked for"),
    ):
        for column, whole in DENOMINATORS.items():
            if column in table:
                lines += _section(table, row, column, f"By {what}, of {whole}")
    lines += [
        f"The study's set-up ({published.STUDY_REQUESTS:,} requests, a working set of "
        f"{published.STUDY_WORKING_SET_TOKENS / 1e6:.1f} M tokens, {published.STUDY_BLOCKS:,} "
        "blocks) rebuilt from samples of the sessions under LRU:",
        "",
        headline_text(tables["headline"]),
        "",
        "Shares that look alike:",
        "",
        lay_out(
            tables["contrast"],
            {name: (name, label) for name in published.RecomputeShare._fields[:-1]}
            | {"share": ("share", percent)},
        ),
    ]
    return "\n".join(lines)


DENOMINATORS = {
    "prefilled_tokens_share": "all prefilled tokens",
    "recomputed_tokens_share": "recomputed tokens only",
    "recomputing_requests_share": "requests that recompute anything",
}


def _section(table: pd.DataFrame, row: str, column: str, title: str) -> list[str]:
    """Return one table a policy: a row a bucket, a column a capacity."""
    if table[column].isna().all():
        return [f"{title}: {NO_DATA}", ""]
    lines = []
    for policy, part in table.groupby("policy", sort=False):
        wide = part.pivot(index=row, columns="capacity", values=column).loc[part[row].unique()]
        wide = wide.rename(columns=count)
        wide.columns.name = "capacity"
        lines += [f"{title} ({policy}):", "", wide.map(percent).to_string(), ""]
    return lines


def headline_text(headline: pd.DataFrame) -> str:
    """Return the rebuilt set-ups beside the study's rows: the mean over seeds and the extremes."""
    if headline.empty:
        return f"{NO_DATA}: no sessions, or too few requests"
    parts = []
    for setup, rows in headline.groupby("setup", sort=False):
        runs = rows.drop_duplicates("seed")
        parts.append(
            f"{SETUPS[str(setup)]}: {len(runs)} seeds, {_range(runs['sessions'])} sessions, "
            f"{_range(runs['requests'])} requests, {_range(runs['distinct_tokens'])} distinct "
            f"tokens, {_range(runs['capacity'])} blocks, hit ratio {_spread(runs['hit_ratio'])}"
        )
        parts.append(headline_shares(rows).to_string(index=False) + "\n")
    return "\n".join(parts)


def headline_shares(rows: pd.DataFrame) -> pd.DataFrame:
    """Return a row a bucket: the study's share, and ours in each denominator over seeds.

    The study's rows sum to 78 %; what is missing is set beside the first requests of sessions.
    """
    missing = 1 - sum(published.STUDY_GAP_SHARES.values())
    study = {**published.STUDY_GAP_SHARES, FIRST_REQUEST: missing}
    late = rows[rows["gap"].isin(OVER_5_MIN)].groupby("seed").sum(numeric_only=True)
    shown = []
    for bucket in (*BUCKETS, FIRST_REQUEST, ">= 5 min"):
        part = rows[rows["gap"] == bucket] if bucket in study else late
        value = study.get(bucket, published.STUDY_OVER_5_MIN)
        note = " (missing)" if bucket == FIRST_REQUEST else ""
        shown.append(
            {
                "gap": bucket,
                "the study": f"{percent(value)}{note}",
                "of prefilled tokens": _spread(part["prefilled_tokens_share"]),
                "of recomputed tokens": _spread(part["recomputed_tokens_share"]),
                "of recomputing requests": _spread(part["recomputing_requests_share"]),
            }
        )
    return pd.DataFrame(shown)


def headlines_by_trace(headline: pd.DataFrame) -> pd.DataFrame:
    """Return prefilled tokens by gap: the study beside every trace and way of rebuilding it."""
    parts = {
        (trace, setup): headline_shares(rows).set_index("gap")
        for (trace, setup), rows in headline.groupby(["trace", "setup"], sort=False)
    }
    study = next(iter(parts.values()))["the study"]
    columns = {
        f"{trace}, {setup}": part["of prefilled tokens"] for (trace, setup), part in parts.items()
    }
    return pd.DataFrame({"the study": study, **columns})


def short_gaps(bygap: pd.DataFrame, blocks: int = published.STUDY_BLOCKS) -> dict[str, object]:
    """Return what the prose says of gaps under 10 s: the most, where, and at the study's size."""
    numbers: dict[str, object] = {"study_short": percent(published.STUDY_GAP_SHARES[BUCKETS[0]])}
    rows = bygap[(bygap["gap"] == BUCKETS[0]) & bygap["recomputed_tokens_share"].notna()]
    for trace, part in rows.groupby("trace"):
        most = part.sort_values("recomputed_tokens_share", kind="stable").iloc[-1]
        numbers[f"{trace}_short_most"] = percent(most["recomputed_tokens_share"])
        numbers[f"{trace}_short_most_at"] = f"{most['capacity']:,}"
        for row in part[part["capacity"] == blocks].itertuples():
            numbers[f"{trace}_short_40k"] = percent(row.recomputed_tokens_share)
            numbers[f"{trace}_short_40k_prefilled"] = percent(row.prefilled_tokens_share)
    return numbers


def near_published(contrast: pd.DataFrame) -> dict[str, object]:
    """Return which traces come close to AgentSysBench's two shares under the provider's TTL.

    Close is within `CLOSE` of both; the others are told with their shares.
    """
    rows = contrast[contrast["regime"].str.startswith("TTL") & (contrast["source"] == "ours")]
    ours = rows.pivot(index="trace", columns="numerator", values="share")
    ours = ours[["recomputed tokens", f"recomputed tokens at {published.CACHE_WRITE_PRICE:g}"]]
    theirs = [row.share for row in published.RECOMPUTE_SHARES[:2]]
    close = ours.sub(theirs).abs().max(axis=1) <= CLOSE
    return {
        "contrast_limit": f"{100 * CLOSE:g}",
        "contrast_theirs": " and ".join(percent(share) for share in theirs),
        "contrast_close": _with_shares(ours[close]),
        "contrast_far": _with_shares(ours[~close]),
    }


def _with_shares(ours: pd.DataFrame) -> str:
    told = [f"{row[0]} ({percent(row[1])}, {percent(row[2])})" for row in ours.itertuples()]
    return ", ".join(told) or "none"


def study_words(headline: pd.DataFrame) -> dict[str, object]:
    """Return the study's shares and set-up, and how its working set compares, for the prose."""
    shares = [100 * share for share in published.STUDY_GAP_SHARES.values()]
    late = 100 * sum(published.STUDY_GAP_SHARES[bucket] for bucket in OVER_5_MIN)
    told: dict[str, object] = {
        "study_rows": ", ".join(f"{share:.1f}" for share in shares),
        "study_sum": f"{sum(shares):.1f}",
        "study_missing": f"{100 - sum(shares):.0f}",
        "study_late": percent(published.STUDY_OVER_5_MIN),
        "study_late_sum": f"{late:.1f}",
        "study_requests": f"{published.STUDY_REQUESTS:,}",
        "study_tokens": f"{published.STUDY_WORKING_SET_TOKENS / 1e6:.1f} million",
        "study_blocks": f"{published.STUDY_BLOCKS:,}",
    }
    distinct = headline[headline["setup"] == "requests"].groupby("trace")["distinct_tokens"].mean()
    for trace, tokens in distinct.items():
        told[f"{trace}_tokens_factor"] = f"{tokens / published.STUDY_WORKING_SET_TOKENS:.1f}"
    return told


def _range(values: pd.Series) -> str:
    low, high = count(values.min()), count(values.max())
    return low if low == high else f"{low} to {high}"


def _spread(shares: pd.Series) -> str:
    return f"{percent(shares.mean())} ({100 * shares.min():.1f} to {100 * shares.max():.1f})"


EXPERIMENT = Experiment(
    3, "gap", "Gap analysis: the pauses that recomputed tokens follow", tables, text
)
