"""Priority by depth: evict the deepest leaf, so that roots of chains stay.

Source: classic control; what a static priority for shared prefixes amounts to.
Cost: O(log leaves) a request. Adapted: depths within an octave (1, 2–3, 4–7,
8–15, ... blocks down) rank equal and the least recently used of them goes:
exact depth would alternate block by block between chains of one length.
"""

from numba import njit

from kvsim.cache.policy import Policy


@njit(cache=True)
def octave_start(blocks):
    """Return the greatest power of two that is at most `blocks`."""
    power = 1
    while 2 * power <= blocks:
        power *= 2
    return power


def rank(state, cache, node, now):
    """Rank by the depth of the deepest resident block, to the octave, deepest first."""
    block = cache.nodes[node]
    return -float(octave_start(block.depth + block.resident))


def take(state, cache, node, blocks, now):
    """Stop at the end of the octave."""
    block = cache.nodes[node]
    deepest = block.depth + block.resident
    return min(blocks, deepest - octave_start(deepest) + 1)


POLICY = Policy(
    name="depth",
    summary="Evict the deepest leaf, to the octave.",
    source="classic control",
    rank=rank,
    take=take,
)
