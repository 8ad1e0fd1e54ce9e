"""LengthAware: LFU that among equals evicts what stands latest in its requests.

Source: Mooncake's technical report (2407.00079), which says "like LFU but prefers to
evict blocks late in requests" and no more; the rest is our reading. A leaf ranks
by its uses since it was inserted, then by its position, the latest first, then by recency.
Positions are compared in whole steps, so that a tail need not go block by block.

Parameters: `step` in tokens. Cost: O(log leaves) a request and step evicted. Adapted: leaves only.
"""

import numpy as np

from kvsim.cache.policy import Policy, new_state


def rank(state, cache, node, now):
    """Rank by uses, then by position."""
    block = cache.nodes[node]
    step = (block.depth + block.resident - 1) // state.table[0]
    return float(block.uses - cache.runs[block.run].uses) * 2.0**31 - step


def take(state, cache, node, blocks, now):
    """Let go what stands in one step."""
    block = cache.nodes[node]
    return min(blocks, 1 + (block.depth + block.resident - 1) % state.table[0])


def setup(trace, capacity, seed, step):
    """Return the step in blocks."""
    return new_state(trace, table=np.array([max(int(step) // trace.block_size, 1)]))


POLICY = Policy(
    name="length-aware",
    summary="Evict the leaf with the fewest uses, the latest in its requests among equals.",
    source="Mooncake (2407.00079), our reading of one sentence",
    rank=rank,
    setup=setup,
    take=take,
    parameters={"step": 1024},
)
