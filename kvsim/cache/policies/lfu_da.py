"""LFU-DA: LFU whose counts age as blocks are evicted.

Source: Arlitt et al. 2000 (LFU with dynamic aging). A use sets a block's key
to L + its uses; an eviction raises L to the key of the victim, so what was
popular long ago loses to what is used now. Cost: O(node visits) in all plus
O(log leaves) a request. Adapted: the leaf with the smallest key goes, which
need not have the smallest key of all blocks, so L never falls; uses count
from insertion; ties go to the least recently used.
"""

from numba import njit

from kvsim.cache.policy import Policy, new_state

AGE = 0  # of the scalars: L; of a node's columns: L at its last use


@njit(cache=True)
def key(state, cache, node):
    """Return L at the last use plus the uses since insertion."""
    block = cache.nodes[node]
    return state.nodes[node, AGE] + (block.uses - cache.runs[block.run].uses)


def rank(state, cache, node, now):
    """Rank by the key."""
    return key(state, cache, node)


def on_touch(state, cache, first, last, now):
    """Set the age that the key counts from."""
    for level in range(first, last):
        state.nodes[cache.path[level], AGE] = state.scalars[AGE]


def take(state, cache, node, blocks, now):
    """Raise the age to the victim's key."""
    state.scalars[AGE] = max(state.scalars[AGE], key(state, cache, node))
    return blocks


def setup(trace, capacity, seed):
    """Return the age, now and at each node's last use."""
    return new_state(trace, scalars=[0.0], nodes=1)


POLICY = Policy(
    name="lfu-da",
    summary="Evict the leaf with the fewest uses, counted on top of an age that evictions raise.",
    source="Arlitt et al. 2000 (LFU-DA)",
    rank=rank,
    setup=setup,
    on_touch=on_touch,
    take=take,
)
