"""Hyperbolic caching: evict the leaf used least often for its time in the cache.

Source: Blankstein et al. 2017. The priority is uses since insertion over time
since insertion. Cost: O(leaves) a request that evicts. Adapted: all leaves are
ranked where the paper samples 64 objects; time counts requests, plus one.
"""

from kvsim.cache.policy import Policy


def rank(state, cache, node, now):
    """Rank by uses a request since insertion."""
    block = cache.nodes[node]
    run = cache.runs[block.run]
    return (block.uses - run.uses) / (now - run.birth + 1)


POLICY = Policy(
    name="hyperbolic",
    summary="Evict the leaf with the fewest uses per time in the cache.",
    source="Blankstein et al. 2017 (Hyperbolic Caching)",
    rank=rank,
    rerank="request",
)
