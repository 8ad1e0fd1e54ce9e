"""LeCaR: draw the victim from LRU or LFU, and learn whose victims return.

Source: Vietri et al. 2018. Either expert has a history of its victims, half as
long as the cache. A miss on a block in a history lowers the weight of the
expert that evicted it by the factor exp(-rate · regret), where the regret is
0.005^(time since the eviction / cache size). Cost: O(leaves) a request that
evicts. Adapted: a request draws its expert once (seeded), for all the blocks
it evicts; it misses once, at the block at which its prefix ends; time counts
blocks inserted. LFU counts uses since insertion.
"""

import math

import numpy as np
from numba import njit

from kvsim.cache.policies.ghosts import bury, claim_missing, drop, mark_of, new_ghost, trim
from kvsim.cache.policies.random import mix
from kvsim.cache.policy import INSERTED, Policy, new_state

WEIGHT, BY_LRU, SEED, RATE, DISCOUNT, HISTORY = range(6)


@njit(cache=True)
def histories(state):
    """Return the victims of LRU and of LFU."""
    half = len(state.table) // 2
    return state.table[:half], state.table[half:]


@njit(cache=True)
def regret(state, cache, history, node):
    """Return the factor for an expert's weight after a miss on a node's first absent block."""
    mark = mark_of(history, node, cache.nodes[node].resident)
    if mark < 0:
        return 1.0
    age = cache.counts[INSERTED] - mark
    return math.exp(-state.scalars[RATE] * state.scalars[DISCOUNT] ** age)


def rank(state, cache, node, now):
    """Rank as the expert does that was drawn."""
    if state.scalars[BY_LRU]:
        return 0.0
    block = cache.nodes[node]
    return float(block.uses - cache.runs[block.run].uses)


def on_request(state, cache, now, hit_blocks):
    """Learn from the miss, then draw the expert."""
    scalars = state.scalars
    by_lru, by_lfu = histories(state)
    missed = -1
    node = cache.requests[now].terminal
    while node >= 0:
        if cache.nodes[node].resident < cache.nodes[node].length:
            missed = node
        node = cache.nodes[node].parent
    if missed >= 0:
        lru = scalars[WEIGHT] * regret(state, cache, by_lru, missed)
        lfu = (1.0 - scalars[WEIGHT]) * regret(state, cache, by_lfu, missed)
        scalars[WEIGHT] = min(max(lru / (lru + lfu), 0.01), 0.99)
    claim_missing(by_lru, cache, now)
    claim_missing(by_lfu, cache, now)
    drawn = float(mix(np.uint64(scalars[SEED]), np.uint64(now + 1)) >> np.uint64(11)) / 2.0**53
    scalars[BY_LRU] = drawn < scalars[WEIGHT]


def on_touch(state, cache, first, last, now):
    """Forget the history of what was inserted."""
    by_lru, by_lfu = histories(state)
    for level in range(first, last):
        drop(by_lru, cache.path[level])
        drop(by_lfu, cache.path[level])


def on_remove(state, cache, node, blocks, now, expired):
    """Enter a victim into its expert's history."""
    if not expired:
        by_lru, by_lfu = histories(state)
        history = by_lru if state.scalars[BY_LRU] else by_lfu
        start = cache.nodes[node].resident
        bury(history, node, start, start + blocks, cache.counts[INSERTED])
        trim(history, int(state.scalars[HISTORY]))


def setup(trace, capacity, seed, rate, history):
    """Return the weight of LRU, the constants, and the histories."""
    remembered = int(history * capacity)
    ghost = new_ghost(trace, remembered)
    return new_state(
        trace,
        scalars=[0.5, 0.0, seed, rate, 0.005 ** (1 / max(capacity, 1)), remembered],
        table=np.concatenate([ghost, ghost]),
    )


POLICY = Policy(
    name="lecar",
    summary="Draw the victim from LRU or LFU, weighted by how rarely their victims return.",
    source="Vietri et al. 2018 (LeCaR)",
    rank=rank,
    setup=setup,
    on_request=on_request,
    on_touch=on_touch,
    on_remove=on_remove,
    rerank="request",
    parameters={"rate": 0.45, "history": 0.5},
)
