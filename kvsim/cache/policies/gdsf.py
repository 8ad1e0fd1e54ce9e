"""GDSF: LFU-DA that weighs a block's uses by what recomputing it costs.

Source: Cherkasova 1998 (Greedy-Dual-Size with frequency): a use sets the key
to L + uses · cost / size, an eviction raises L to the victim's key. Cost:
O(node visits) in all plus O(log leaves) a request. Adapted: every block has
the same size; its cost is its tokens' prefill, tokens · (1 + tokens above /
`knee`), `knee` being the prefix length at which attention over the prefix
costs as much as everything else (50,000 tokens is near a dense model of 70
billion parameters); the leaf with the smallest key goes and L never falls.
"""

from numba import njit

from kvsim.cache.policy import Policy, new_state
from kvsim.traces.trace import TraceError

AGE, KNEE = range(2)


@njit(cache=True)
def key(state, cache, node):
    """Return the key of the node's deepest resident block."""
    block = cache.nodes[node]
    tokens = cache.block_size if block.resident < block.length else block.tail_tokens
    above = block.tokens_above + (block.resident - 1) * cache.block_size
    cost = tokens * (1.0 + above / state.scalars[KNEE])
    return state.nodes[node, AGE] + (block.uses - cache.runs[block.run].uses) * cost


def rank(state, cache, node, now):
    """Rank by the key."""
    return key(state, cache, node)


def on_touch(state, cache, first, last, now):
    """Set the age that the key counts from."""
    for level in range(first, last):
        state.nodes[cache.path[level], AGE] = state.scalars[AGE]


def take(state, cache, node, blocks, now):
    """Raise the age to the victim's key; what is left of the run is worth less, but for a tail."""
    state.scalars[AGE] = max(state.scalars[AGE], key(state, cache, node))
    block = cache.nodes[node]
    partial = block.resident == block.length and block.tail_tokens < cache.block_size
    return min(blocks, 1) if partial else blocks


def setup(trace, capacity, seed, knee):
    """Return the age, now and at each node's last use, and the knee."""
    if not knee > 0:
        raise TraceError(f"knee is {knee}; it must be above 0 tokens")
    return new_state(trace, scalars=[0.0, knee], nodes=1)


POLICY = Policy(
    name="gdsf",
    summary="Evict the leaf with the smallest uses × recompute cost, on top of LFU-DA's age.",
    source="Cherkasova 1998 (GDSF)",
    rank=rank,
    setup=setup,
    on_touch=on_touch,
    take=take,
    parameters={"knee": 50_000.0},
)
