"""T-LRU: LRU that first evicts what no tail latency needs.

Source: 2510.15152. A conversation of length L that comes back with Q̂ more tokens meets its
latency if all but ξ of them are cached, so its branch needs B = max(L + Q̂ − ξ, 0) tokens.
L is the branch's high-water length and never shrinks. First go leaves whose removal leaves at
least B tokens cached, the least recently used first, then plain LRU.

Parameters: `ahead` (Q̂) and `budget` (ξ) in tokens. Cost: O(log leaves) a request. Adapted:
L is the longest prompt plus answer that went through the leaf, and Q̂ one number where the
paper predicts; the paper aims at tail latency, which hit ratios do not show.
"""

from numba import njit

from kvsim.cache.policy import Policy, new_state

AHEAD, BUDGET = range(2)


@njit(cache=True)
def spare(state, cache, node):
    """Return how many of the node's resident blocks its branch does not need."""
    block = cache.nodes[node]
    needed = max(state.nodes[node, 0] + state.scalars[AHEAD] - state.scalars[BUDGET], 0.0)
    kept = max(int((needed - block.tokens_above + cache.block_size - 1) // cache.block_size), 0)
    return max(block.resident - kept, 0)


def rank(state, cache, node, now):
    """Rank spare blocks before needed ones."""
    return 0.0 if spare(state, cache, node) > 0 else 1.0


def on_touch(state, cache, first, last, now):
    """Raise the high-water length."""
    request = cache.requests[now]
    length = float(request.input_tokens + request.output_tokens)
    for level in range(first, last):
        node = cache.path[level]
        state.nodes[node, 0] = max(state.nodes[node, 0], length)


def take(state, cache, node, blocks, now):
    """Let go what is spare, or all if nothing is."""
    free = spare(state, cache, node)
    return min(blocks, free) if free > 0 else blocks


def setup(trace, capacity, seed, ahead, budget):
    """Return the parameters, and the high-water length of each node's branch."""
    return new_state(trace, scalars=[ahead, budget], nodes=1)


POLICY = Policy(
    name="t-lru",
    summary="LRU, but first what a branch can spare and still start in time.",
    source="T-LRU (2510.15152)",
    rank=rank,
    setup=setup,
    on_touch=on_touch,
    take=take,
    parameters={"ahead": 512.0, "budget": 2048.0},
)
