"""MRU: evict the leaf that was used last.

Source: classic; the `mru` strategy of SGLang. Cost: O(log leaves) a request.
Nothing adapted: LRU's order backwards, restricted to evictable leaves.
"""

from kvsim.cache.policy import Policy


def rank(state, cache, node, now):
    """Rank by the last use, latest first."""
    return -float(cache.nodes[node].last)


POLICY = Policy(
    name="mru",
    summary="Evict the most recently used leaf.",
    source="classic; SGLang's mru",
    rank=rank,
)
