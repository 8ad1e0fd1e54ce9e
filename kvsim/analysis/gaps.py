"""Sessions in time, and which pauses the recomputed tokens follow.

A gap is an arrival minus the previous arrival of the same session, sub-agents
included. A token is *prefilled* if the request does not find it in the cache,
and *recomputed* if an infinite cache would have had it.
"""

import numpy as np
import pandas as pd
from numba import njit

from kvsim.cache.result import Result
from kvsim.traces.trace import Trace

# Traces state times to the millisecond at best; synthetic starts cost the last bits of a
# difference, and thousands of gaps are exactly 10 s.
DECIMALS = 6
EDGES = (0.0, 10.0, 60.0, 300.0, 1800.0, 3600.0, np.inf)  # seconds; buckets [a, b)
BUCKETS = ("< 10 s", "10-60 s", "1-5 min", "5-30 min", "30-60 min", ">= 1 h")
FIRST_REQUEST = "first request"
FIRST_USE = "first use"
NO_BLOCK = "no block"


def gap(trace: Trace) -> np.ndarray:
    """Return each request's gap.

    Parameters
    ----------
    trace : Trace
        The requests.

    Returns
    -------
    float64[n]
        Seconds since the session's previous arrival; NaN for the first
        request of a session and where the trace has no sessions.
    """
    if trace.sessions is None:
        return np.full(trace.requests, np.nan)
    previous = pd.Series(trace.arrival).groupby(trace.session).shift()
    return np.round(trace.arrival - previous.to_numpy(), DECIMALS)


def idle(trace: Trace) -> np.ndarray:
    """Return how long each request's session had been idle, before flooring at 0.

    The latest end so far is that of any earlier request of the session; a
    request without a service time counts as ending when it arrives, which
    makes the idle time an upper bound there.

    Parameters
    ----------
    trace : Trace
        The requests.

    Returns
    -------
    float64[n]
        Seconds; negative where an earlier request still runs, NaN as for `gap`.
    """
    if trace.sessions is None:
        return np.full(trace.requests, np.nan)
    return np.round(trace.arrival - _latest_end(trace, _known_end(trace)), DECIMALS)


def sessions(trace: Trace) -> pd.DataFrame:
    """Return one row a session: its span and the bounds of its duty.

    Span is the last known end minus the first arrival. Duty is the union of
    the service intervals over the span. Where a service time is missing, the
    lower bound takes the request to run no time, the upper bound until the
    next arrival of its own kind (main or sub-agent), for which its answer
    is awaited, or else until the session's end.

    Parameters
    ----------
    trace : Trace
        The requests.

    Returns
    -------
    pandas.DataFrame
        Index ``session``; ``requests``, ``untimed`` (without service time),
        ``first_s`` (arrival), ``span_s``, ``duty_low``, ``duty_high`` (NaN where the
        span is 0). Empty where the trace has no sessions.
    """
    columns = ["requests", "untimed", "first_s", "span_s", "duty_low", "duty_high"]
    if trace.sessions is None:
        return pd.DataFrame(columns=columns, dtype=np.float64)
    rows = pd.DataFrame({"session": trace.session, "arrival": trace.arrival})
    rows["untimed"] = np.isnan(trace.service)
    rows["end"] = _known_end(trace)
    known_end = rows.groupby("session")["end"].transform("max").to_numpy()
    rows["busy_low"] = _busy(trace, rows["end"].to_numpy())
    rows["busy_high"] = _busy(trace, _latest_possible_end(trace, known_end))
    grouped = rows.groupby("session")
    table = grouped.agg(
        requests=("arrival", "size"), untimed=("untimed", "sum"), first_s=("arrival", "min")
    )
    table["span_s"] = np.round(grouped["end"].max() - table["first_s"], DECIMALS)
    for bound in ("low", "high"):
        table[f"duty_{bound}"] = grouped[f"busy_{bound}"].sum() / table["span_s"].replace(0, np.nan)
    return table


def by_gap(trace: Trace, result: Result) -> pd.DataFrame:
    """Attribute what a run prefills to the gap before the request.

    Parameters
    ----------
    trace : Trace
        The requests.
    result : Result
        A run on them.

    Returns
    -------
    pandas.DataFrame
        A row a bucket of `BUCKETS` and one for the first requests of sessions.
        Counts ``requests``, ``prefilling_requests`` and ``recomputing_requests`` (with at
        least one such token), ``prefilled_tokens``, ``recomputed_tokens``; then each but
        the first as a share of its own sum over the rows. All missing
        where the trace has no sessions, shares also where their sum is 0.
    """
    labels = [*BUCKETS, FIRST_REQUEST]
    counted = slice(result.first, None)
    prefilled = (trace.input_tokens - result.hit_tokens)[counted]
    recomputed = recomputed_tokens(trace, result)
    counts = {
        "requests": np.ones(len(prefilled), dtype=np.int64),
        "prefilling_requests": prefilled > 0,
        "recomputing_requests": recomputed > 0,
        "prefilled_tokens": prefilled,
        "recomputed_tokens": recomputed,
    }
    table = pd.DataFrame({"gap": labels})
    bucket = _bucket(gap(trace)[counted])
    for name, values in counts.items():
        table[name] = np.bincount(bucket, weights=values, minlength=len(labels)).astype(np.int64)
    for name in list(counts)[1:]:
        table[f"{name}_share"] = _share(table[name])
    if trace.sessions is None:
        table[list(table.columns[1:])] = np.nan
    return table


def by_age(trace: Trace, result: Result) -> pd.DataFrame:
    """Attribute what a run prefills to the time since each block was last asked for.

    Works without sessions.

    Parameters
    ----------
    trace : Trace
        The requests.
    result : Result
        A run on them with prefix hits.

    Returns
    -------
    pandas.DataFrame
        A row a bucket of `BUCKETS`, then ``first use`` (compulsory misses) and
        ``no block`` (tokens without a block, and those that the hit cap does not
        count). ``prefilled_blocks``, ``prefilled_tokens``, ``recomputed_tokens``, and the
        tokens as shares of their sums.
    """
    warm = np.arange(trace.requests) < result.first
    found = np.where(warm, trace.chain_blocks, result.hit_blocks + result.capped_blocks)
    counted = slice(result.first, None)
    blocks, tokens = np.zeros((2, len(BUCKETS)), dtype=np.int64)
    _misses_by_age(
        trace.terminal,
        trace.arrival,
        *trace.tree,
        trace.block_size,
        found,
        np.array(EDGES[1:-1]),
        blocks,
        tokens,
    )
    first_blocks = int((trace.chain_blocks - trace.seen_blocks)[counted].sum())
    first_tokens = int((trace.chain_tokens - trace.seen_tokens)[counted].sum())
    no_block = int((trace.unblocked_tokens + result.capped_tokens)[counted].sum())
    table = pd.DataFrame(
        {
            "age": [*BUCKETS, FIRST_USE, NO_BLOCK],
            "prefilled_blocks": [*blocks, first_blocks, int(result.capped_blocks[counted].sum())],
            "prefilled_tokens": [*tokens, first_tokens, no_block],
            "recomputed_tokens": [*tokens, 0, 0],
        }
    )
    for name in ("prefilled_tokens", "recomputed_tokens"):
        table[f"{name}_share"] = _share(table[name])
    return table


def recomputed_tokens(trace: Trace, result: Result) -> np.ndarray:
    """Return the tokens that each request that counts prefills although they were seen before."""
    return (trace.seen_tokens - result.hit_tokens - result.capped_tokens)[result.first :]


def _known_end(trace: Trace) -> np.ndarray:
    return trace.arrival + np.nan_to_num(trace.service)


def _latest_possible_end(trace: Trace, session_end: np.ndarray) -> np.ndarray:
    same_kind = pd.Series(trace.arrival).groupby([trace.session, trace.subagent])
    awaited = same_kind.shift(-1).fillna(pd.Series(session_end)).to_numpy()
    return np.where(np.isnan(trace.service), awaited, trace.arrival + trace.service)


def _latest_end(trace: Trace, end: np.ndarray) -> np.ndarray:
    """Return the latest end among the session's earlier requests, NaN for its first."""
    latest = pd.Series(end).groupby(trace.session).cummax()
    return latest.groupby(trace.session).shift().to_numpy()


def _busy(trace: Trace, end: np.ndarray) -> np.ndarray:
    """Return what each request adds to the union of its session's service intervals."""
    busy_until = np.fmax(_latest_end(trace, end), trace.arrival)
    return np.maximum(end - busy_until, 0.0)


def _bucket(gaps: np.ndarray) -> np.ndarray:
    bucket = np.searchsorted(EDGES[1:-1], gaps, side="right")
    return np.where(np.isnan(gaps), len(BUCKETS), bucket)


def _share(counts: pd.Series) -> pd.Series:
    return counts / (counts.sum() or np.nan)


@njit(cache=True)
def _misses_by_age(
    terminal,
    arrival,
    parent,
    length,
    depth,
    tokens_above,
    tail_tokens,
    block_size,
    found,
    edges,
    blocks,
    tokens,
):
    """Sort the missed blocks that were asked for before into `edges` (seconds)."""
    last = np.full(len(parent), -1, dtype=np.int32)
    for now in range(len(terminal)):
        node = terminal[now]
        while node >= 0:
            # The misses of a chain are its end, so those within a node include its tail.
            missed = min(np.int64(length[node]), depth[node] + length[node] - found[now])
            if last[node] >= 0 and missed > 0:
                age = np.floor((arrival[now] - arrival[last[node]]) * 1e6 + 0.5) / 1e6
                bucket = np.searchsorted(edges, age, side="right")
                blocks[bucket] += missed
                tokens[bucket] += (missed - 1) * block_size + tail_tokens[node]
            last[node] = now
            node = parent[node]
