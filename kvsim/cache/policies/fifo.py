"""FIFO: evict the leaf that was inserted longest ago.

Source: classic control. Cost: O(log leaves) a request. Adapted: among blocks
of one request, which are inserted root first, the shallower is the older.
"""

from kvsim.cache.policy import Policy


def rank(state, cache, node, now):
    """Rank by insertion: request, then depth."""
    block = cache.nodes[node]
    return float(cache.runs[block.run].birth) * 2**24 + block.depth + block.resident


POLICY = Policy(
    name="fifo",
    summary="Evict the leaf inserted first.",
    source="classic",
    rank=rank,
)
