"""The exact LRU curve at every capacity from one pass (Mattson's stack distances).

Blocks of a node share their last use, so a Fenwick tree over requests with
block counts as weights holds the whole LRU stack. The blocks of a chain that
were last used by one request form one group, whose distances are consecutive:
the deepest is the oldest. With a TTL a hit must also be young enough; an access
older than the TTL misses at every capacity, and the stack stays as it is.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from numba import njit

from kvsim.cache.capacity import log_spaced, parse
from kvsim.cache.warmup import first_measured
from kvsim.traces.durations import parse_duration
from kvsim.traces.trace import Trace, TraceError, on_one_clock

POINTS = 64  # of a curve whose capacities nobody chose


def lru_curve(trace: Trace, ttl: float | None = None, *, measure_from: str | int = 0) -> np.ndarray:
    """Return the LRU hit blocks at every capacity.

    Leaf mode with pins, deepest oldest (or flat: the same).

    Parameters
    ----------
    trace : Trace
        The requests.
    ttl : float, optional
        Seconds after its last touch a block lives.
    measure_from : str or int
        Count hits only from there on, see `kvsim.cache.warmup.first_measured`.

    Returns
    -------
    int64[distinct_blocks + 1]
        Entry ``c`` is the hits of a cache of ``c`` blocks.

    Raises
    ------
    TraceError
        If the trace is on no common clock, or `measure_from` makes no sense.
    """
    on_one_clock(trace)
    first = first_measured(trace, measure_from)
    steps = np.zeros(trace.distinct_blocks + 2, dtype=np.int64)
    tree = trace.tree
    limit = np.inf if ttl is None else float(ttl)
    _distances(trace.terminal, trace.arrival, tree.parent, tree.length, limit, first, steps)
    return np.cumsum(np.cumsum(steps))[:-1]


def curve(
    trace: Trace,
    capacities: Sequence[str | int] | None = None,
    *,
    every: bool = False,
    ttl: float | str | None = None,
    bytes_per_token: float | str | None = None,
    measure_from: str | int = 0,
) -> pd.DataFrame:
    """Return LRU's exact hits at many capacities, from one pass.

    Parameters
    ----------
    trace : Trace
        The requests.
    capacities : sequence of str or int, optional
        As `kvsim.cache.capacity.parse` takes them; unless given, `POINTS` log-spaced ones, and
        the first that reaches the hits of an infinite cache.
    every : bool
        Every capacity at which the hits rise, instead.
    ttl : float or str, optional
        Seconds, or a duration such as ``"5m"``, after its last touch a block lives.
    bytes_per_token : float or str, optional
        KV bytes of a token, or a model's name, for capacities given as memory.
    measure_from : str or int
        Count hits only from there on, see `kvsim.cache.warmup.first_measured`.

    Returns
    -------
    DataFrame
        ``capacity`` (blocks), ``hit_blocks``, ``hit_ratio`` (of the blocks asked for; None if
        there are none).

    Raises
    ------
    TraceError
        If the trace is on no common clock, or an argument makes no sense.
    """
    if every and capacities is not None:
        raise TraceError("every capacity and chosen capacities exclude each other")
    lifetime = None if ttl is None else parse_duration(ttl)
    hits = lru_curve(trace, lifetime, measure_from=measure_from)
    if every:
        sizes = [0, *(np.flatnonzero(np.diff(hits) > 0) + 1).tolist()]
    elif capacities is not None:
        sizes = [parse(size, trace, bytes_per_token) for size in capacities]
    else:
        enough = int(hits.searchsorted(hits[-1]))
        sizes = sorted({*log_spaced(1, trace.distinct_blocks, POINTS), enough})
    asked = int(trace.chain_blocks[first_measured(trace, measure_from) :].sum())
    found = [int(hits[min(size, len(hits) - 1)]) for size in sizes]
    ratios = pd.Series([hit / asked if asked else None for hit in found], dtype=object)
    return pd.DataFrame({"capacity": sizes, "hit_blocks": found, "hit_ratio": ratios})


@njit(cache=True)
def _distances(terminal, arrival, parent, length, ttl, first, steps):
    """Add to `steps` the second difference of hits over capacity."""
    last = np.full(len(parent), -1, dtype=np.int32)
    fenwick = np.zeros(len(terminal) + 1, dtype=np.int64)
    total = 0  # blocks in the stack
    for now in range(len(terminal)):
        node = terminal[now]
        moved = 0
        while node >= 0:
            before = last[node]
            blocks = 0
            while node >= 0 and last[node] == before:
                blocks += length[node]
                last[node] = now
                node = parent[node]
            moved += blocks
            if before >= 0:
                younger = total - _prefix(fenwick, before + 1)
                if now >= first and arrival[now] - arrival[before] <= ttl:
                    steps[younger + 1] += 1
                    steps[younger + blocks + 1] -= 1
                _add(fenwick, before + 1, -blocks)
                total -= blocks
        _add(fenwick, now + 1, moved)
        total += moved


@njit(cache=True)
def _prefix(fenwick, i):
    count = 0
    while i > 0:
        count += fenwick[i]
        i &= i - 1
    return count


@njit(cache=True)
def _add(fenwick, i, blocks):
    while i < len(fenwick):
        fenwick[i] += blocks
        i += i & -i
