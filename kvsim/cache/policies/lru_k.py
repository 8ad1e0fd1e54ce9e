"""LRU-K: evict the leaf whose K-th most recent use is longest ago.

Source: O'Neil, O'Neil, Weikum 1993. Cost: O(node visits) in all plus
O(log leaves) a request. A block with fewer than K uses goes first, the least
recently used of these. Adapted: time counts requests; the history of a block
that was evicted is kept for ever (retained information period without end),
or lost with the block where `history` is false; no correlated reference
period, since one request uses a block once.
"""

from kvsim.cache.policy import Policy, new_state
from kvsim.traces.trace import TraceError

HISTORY = 0


def rank(state, cache, node, now):
    """Rank by the K-th most recent use, 0 where there is none."""
    k = state.nodes.shape[1]
    block = cache.nodes[node]
    if not state.scalars[HISTORY] and block.uses - cache.runs[block.run].uses < k:
        return 0.0
    return state.nodes[node, (block.uses + 1) % k]


def on_touch(state, cache, first, last, now):
    """Overwrite the oldest of the K uses kept."""
    k = state.nodes.shape[1]
    for level in range(first, last):
        node = cache.path[level]
        state.nodes[node, cache.nodes[node].uses % k] = now + 1


def setup(trace, capacity, seed, k, history):
    """Return a ring of K uses a node."""
    if k < 1:
        raise TraceError(f"k is {k}; it must be at least 1")
    return new_state(trace, scalars=[history], nodes=k)


POLICY = Policy(
    name="lru-k",
    summary="Evict the leaf whose K-th most recent use (K = 2) is longest ago.",
    source="O'Neil et al. 1993 (LRU-K)",
    rank=rank,
    setup=setup,
    on_touch=on_touch,
    parameters={"k": 2, "history": True},
)
