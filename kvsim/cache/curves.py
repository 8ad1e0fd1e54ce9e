"""The exact LRU curve at every capacity from one pass (Mattson's stack distances).

Blocks of a node share their last use, so a Fenwick tree over requests with
block counts as weights holds the whole LRU stack. The blocks of a chain that
were last used by one request form one group, whose distances are consecutive:
the deepest is the oldest. With a TTL a hit must also be young enough; an access
older than the TTL misses at every capacity, and the stack stays as it is.
"""

import numpy as np
from numba import njit

from kvsim.traces.trace import Trace


def lru_curve(trace: Trace, ttl: float | None = None) -> np.ndarray:
    """Return the LRU hit blocks at every capacity.

    Leaf mode with pins, deepest oldest (or flat: the same).

    Parameters
    ----------
    trace : Trace
        The requests.
    ttl : float, optional
        Seconds after its last touch a block lives.

    Returns
    -------
    int64[distinct_blocks + 1]
        Entry ``c`` is the hits of a cache of ``c`` blocks.
    """
    steps = np.zeros(trace.distinct_blocks + 2, dtype=np.int64)
    tree = trace.tree
    limit = np.inf if ttl is None else float(ttl)
    _distances(trace.terminal, trace.arrival, tree.parent, tree.length, limit, steps)
    return np.cumsum(np.cumsum(steps))[:-1]


@njit(cache=True)
def _distances(terminal, arrival, parent, length, ttl, steps):
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
                if arrival[now] - arrival[before] <= ttl:
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
