"""Belady with mandatory insertion: evict the leaf whose next use is farthest.

Source: Belady 1966. A policy, not a bound: it must store every chain, where
the optimum (`kvsim.cache.bounds`) may bypass. Needs the future. Cost: O(node visits)
in all plus O(log leaves) a request. Ties, of blocks that the same request uses
next or that are never used again, go to the least recently used. With
`advance` off a block keeps the next use it had when it was inserted: the slip
of a harness that forgets to update it (on a tree of one block a node).
"""

import numpy as np

from kvsim.cache.policy import Policy, new_state
from kvsim.traces.trace import accesses_by_node

NEXT, CURSOR = range(2)


def rank(state, cache, node, now):
    """Rank by the next use, farthest first."""
    return -state.nodes[node, NEXT]


def on_touch(state, cache, first, last, now):
    """Advance the nodes to their next use after this request."""
    for level in range(first, last):
        node = cache.path[level]
        run = cache.nodes[node].run
        if not state.scalars[0] and (run < 0 or cache.runs[run].birth != now):
            continue
        i = int(state.nodes[node, CURSOR])
        while i < state.table[node + 1] and state.table[i] <= now:
            i += 1
        state.nodes[node, CURSOR] = i
        state.nodes[node, NEXT] = state.table[i] if i < state.table[node + 1] else np.inf


def setup(trace, capacity, seed, advance):
    """Return the next use of each node, and in `table` which requests access it."""
    start, requests = accesses_by_node(trace)
    start += len(start)  # the requests follow the index in one table
    state = new_state(trace, scalars=[advance], nodes=2, table=np.concatenate([start, requests]))
    state.nodes[:, CURSOR] = start[:-1]
    return state


POLICY = Policy(
    name="belady",
    summary="Evict the leaf whose next use is farthest; every chain is stored.",
    source="Belady 1966",
    rank=rank,
    setup=setup,
    on_touch=on_touch,
    needs=("future",),
    parameters={"advance": True},
)
