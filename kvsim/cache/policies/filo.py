"""FILO: evict the leaf that was inserted last.

Source: classic; the `filo` strategy of SGLang. Cost: O(log leaves) a request.
Adapted: among blocks of one request, which are inserted root first, the
deeper is the younger.
"""

from kvsim.cache.policy import Policy


def rank(state, cache, node, now):
    """Rank by insertion: request, then depth, latest first."""
    block = cache.nodes[node]
    return -(float(cache.runs[block.run].birth) * 2**24 + block.depth + block.resident)


POLICY = Policy(
    name="filo",
    summary="Evict the leaf inserted last.",
    source="classic; SGLang's filo",
    rank=rank,
)
