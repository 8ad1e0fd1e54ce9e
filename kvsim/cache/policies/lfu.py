"""LFU: evict the leaf with the fewest uses; ties go to the least recently used.

Source: classic; "perfect" LFU counts for ever (Breslau et al. 1999).
Cost: O(log leaves) a request. Adapted: a count is a block's, and in-cache LFU
forgets it when the block leaves, so the re-inserted tail of a node counts anew.
"""

from kvsim.cache.policy import Policy, new_state


def rank(state, cache, node, now):
    """Rank by the uses since insertion, or of all time."""
    block = cache.nodes[node]
    if state.scalars[0]:
        return float(block.uses)
    return float(block.uses - cache.runs[block.run].uses)


def setup(trace, capacity, seed, perfect):
    """Return whether counts outlive the block."""
    return new_state(trace, scalars=[perfect])


POLICY = Policy(
    name="lfu",
    summary="Evict the leaf with the fewest uses since it was inserted.",
    source="classic",
    rank=rank,
    setup=setup,
    parameters={"perfect": False},
)
