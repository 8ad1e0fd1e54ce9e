"""Fading: uses since insertion, halved for every `half_life` requests since the last use."""

from kvsim.cache.policy import Policy, new_state


def rank(state, cache, node, now):
    """Rank by faded uses; the smallest goes first."""
    block = cache.nodes[node]
    uses = block.uses - cache.runs[block.run].uses
    return uses * 0.5 ** ((now - block.last) / state.scalars[0])


def setup(trace, capacity, seed, half_life):
    """Return the half-life in requests as the only state."""
    return new_state(trace, scalars=[half_life])


POLICY = Policy(
    name="fading",
    summary="Evict the leaf with the fewest uses, fading with time.",
    source="this page",
    rank=rank,
    setup=setup,
    rerank="request",
    parameters={"half_life": 1000.0},
)
