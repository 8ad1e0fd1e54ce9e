"""LIRS: evict the leaf with the greatest of recency and last reuse gap.

Source: Jiang and Zhang 2002, whose stack and queue find the blocks with the
smallest max(inter-reference recency, recency) to keep. Cost: O(leaves) a
request that evicts. A block used only once has no reuse gap and goes first,
the least recently used of these. Adapted: the criterion itself, without stack
and queue, which decide about one block at a time and would keep a parent and
evict its child's child; gaps count requests, not distinct blocks; the gap of
an evicted block is remembered for ever, so there is no limit on non-resident
entries and no share reserved for new blocks.
"""

import numpy as np

from kvsim.cache.policy import Policy, new_state

LAST, GAP = range(2)


def rank(state, cache, node, now):
    """Rank by the greater of gap and recency, greatest first."""
    return -max(state.nodes[node, GAP], now - state.nodes[node, LAST])


def on_touch(state, cache, first, last, now):
    """Note the gap since the previous use."""
    for level in range(first, last):
        node = cache.path[level]
        if cache.nodes[node].uses > 1:
            state.nodes[node, GAP] = now - state.nodes[node, LAST]
        state.nodes[node, LAST] = now


def setup(trace, capacity, seed):
    """Return last use and gap of each node, the gap without end before the second use."""
    state = new_state(trace, nodes=2)
    state.nodes[:, GAP] = np.inf
    return state


POLICY = Policy(
    name="lirs",
    summary="Evict the leaf with the greatest max(last reuse gap, time since last use).",
    source="Jiang and Zhang 2002 (LIRS), its criterion without its stack",
    rank=rank,
    setup=setup,
    on_touch=on_touch,
    rerank="request",
)
