"""What a TTL over LRU removes, at every capacity, from one pass.

In an LRU stack a block only sinks until it is touched again. So it lives to its
TTL exactly where its position then is within the capacity: where the distinct blocks
touched since its last use, together with the shallower blocks of its own
chain, number fewer than the capacity.

All this is about a TTL that takes effect on time. One that is looked at only when room is
needed, expired blocks first, is LRU itself: what has expired is what LRU would evict.
"""

from dataclasses import dataclass

import numpy as np
from numba import njit

from kvsim.cache.curves import _add, _prefix, lru_curve
from kvsim.traces.trace import Trace


@dataclass(frozen=True, eq=False)
class Flow:
    """Blocks in and out of LRU caches of 0 to all distinct blocks; each int64[distinct + 1]."""

    hits: np.ndarray
    inserted: np.ndarray
    evicted: np.ndarray
    expired: np.ndarray


def flow(trace: Trace, ttl: float | None = None) -> Flow:
    """Return the flow of blocks under LRU, in leaf mode with pins, at every capacity.

    Parameters
    ----------
    trace : Trace
        The requests.
    ttl : float, optional
        Seconds after its last touch a block lives.
    """
    capacity = np.arange(trace.distinct_blocks + 1)
    hits = lru_curve(trace, ttl)
    steps = np.zeros(trace.distinct_blocks + 2, dtype=np.int64)
    limit = np.inf if ttl is None else float(ttl)
    alive = _expiries(
        trace.terminal, trace.arrival, trace.tree.parent, trace.tree.length, limit, steps
    )
    expired = np.cumsum(np.cumsum(steps))[:-1]
    # A request inserts what it misses, as far as the chain fits.
    inserted = _sum_of_minima(trace.chain_blocks, trace.distinct_blocks) - hits
    evicted = inserted - expired - np.minimum(capacity, alive)
    return Flow(hits, inserted, evicted, expired)


def fires_from(with_ttl: Flow) -> int | None:
    """Return the smallest capacity (blocks) at which a block expires, None if at none."""
    return _first(with_ttl.expired > 0)


def hits_differ_from(with_ttl: Flow, without: Flow) -> int | None:
    """Return the smallest capacity (blocks) at which the TTL costs a hit, None if at none."""
    return _first(with_ttl.hits != without.hits)


def _first(true: np.ndarray) -> int | None:
    return int(np.argmax(true)) if true.any() else None


def _sum_of_minima(values: np.ndarray, most: int) -> np.ndarray:
    """Return the sum of min(values, cap) for caps 0 to `most`; no value is above `most`."""
    counts = np.bincount(values, minlength=most + 1)
    at_least = counts[::-1].cumsum()[::-1]
    return np.concatenate(([0], np.cumsum(at_least[1:])))


@njit(cache=True)
def _expiries(terminal, arrival, parent, length, ttl, steps):
    """Add to `steps` the second difference of expiries over capacity; return blocks alive at last.

    The stack is that of `lru_curve`; expired blocks stay in it, below all others.
    """
    last = np.full(len(parent), -1, dtype=np.int32)
    fenwick = np.zeros(len(terminal) + 1, dtype=np.int64)
    total = 0  # blocks in the stack
    expired = 0  # of them beyond their TTL
    oldest = 0  # first request whose blocks may not have expired yet
    for now in range(len(terminal)):
        while arrival[now] - arrival[oldest] > ttl:
            blocks = 0
            node = terminal[oldest]
            while node >= 0:
                if last[node] == oldest:
                    blocks += length[node]
                node = parent[node]
            if blocks > 0:
                younger = total - _prefix(fenwick, oldest + 1)
                steps[younger + 1] += 1
                steps[younger + blocks + 1] -= 1
            oldest += 1
        node = terminal[now]
        moved = 0
        while node >= 0:
            if last[node] >= 0:
                _add(fenwick, last[node] + 1, -length[node])
                total -= length[node]
            moved += length[node]
            last[node] = now
            node = parent[node]
        _add(fenwick, now + 1, moved)
        total += moved
    for node in range(len(parent)):
        if last[node] < oldest:
            expired += length[node]
    return total - expired
