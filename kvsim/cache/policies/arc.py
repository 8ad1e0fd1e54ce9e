"""ARC: recency and frequency lists whose shares follow what is missed.

Source: Megiddo and Modha 2003. T1 holds blocks used once since they entered,
T2 the others; B1 and B2 remember what left each. A block that B1 remembers
raises T1's target size, one of B2 lowers it, by one or by the ratio of the
ghosts' lengths; either enters T2. The least recently used leaf of T1 goes
while T1 is above its target, else that of T2. Cost: O(log leaves) an eviction.
Adapted: only evictable leaves may go; if the list whose turn it is has none,
those of the other may. A request's missing blocks move the target once, B1's
first, before any goes; ghosts are cut to the paper's limits (T1 + B1 at most
the cache, everything at most twice) between requests.
"""

import math

import numpy as np
from numba import njit

from kvsim.cache.policies.ghosts import LIVE, bury, claim_missing, drop, new_ghost, stretch, trim
from kvsim.cache.policies.segments import cut, newest
from kvsim.cache.policy import QUEUE, USED, Policy, new_state, order_of

ONCE, TARGET, TIE_ONCE = range(3)
TALLY = 0  # of a node's blocks, those in T1
RETURNED, SEEN = range(2)
ONCE_FIRST = order_of(0, 1, 2, 3)
TWICE_FIRST = order_of(1, 0, 2, 3)


@njit(cache=True)
def twice(state, cache, node):
    """Say whether a node's deepest resident block is in T2."""
    run = cache.nodes[node].run
    return state.runs[run, RETURNED] > 0 or cache.nodes[node].uses > state.runs[run, SEEN]


@njit(cache=True)
def once_first(state):
    """Say whether it is T1's turn."""
    once, target = state.scalars[ONCE], state.scalars[TARGET]
    return once > target or (once == target and once > 0 and state.scalars[TIE_ONCE] > 0)


@njit(cache=True)
def ghosts(state):
    """Return B1 and B2."""
    half = len(state.table) // 2
    return state.table[:half], state.table[half:]


def rank(state, cache, node, now):
    """Rank by list."""
    return QUEUE if twice(state, cache, node) else 0.0


def turn(state, cache, now):
    """Take from T1 while it is above its target."""
    return ONCE_FIRST if once_first(state) else TWICE_FIRST


def on_request(state, cache, now, hit_blocks):
    """Cut the ghosts, then move the target by what they remember of the missing blocks."""
    scalars = state.scalars
    left_once, left_twice = ghosts(state)
    trim(left_once, max(0, cache.capacity - int(scalars[ONCE])))
    trim(left_twice, 2 * cache.capacity - cache.counts[USED] - left_once[LIVE])
    sizes = left_once[LIVE], left_twice[LIVE]
    from_once = claim_missing(left_once, cache, now)
    from_twice = claim_missing(left_twice, cache, now)
    if from_once > 0:
        raised = scalars[TARGET] + from_once * max(1.0, sizes[1] / sizes[0])
        scalars[TARGET] = min(float(cache.capacity), raised)
    if from_twice > 0:
        lowered = scalars[TARGET] - from_twice * max(1.0, sizes[0] / sizes[1])
        scalars[TARGET] = max(0.0, lowered)
    scalars[TIE_ONCE] = from_twice > 0


def on_touch(state, cache, first, last, now):
    """Move to T2 what was used again, and enter what was inserted."""
    left_once, left_twice = ghosts(state)
    for level in range(first, last):
        node = cache.path[level]
        state.scalars[ONCE] -= state.nodes[node, TALLY]
        state.nodes[node, TALLY] = 0
        run = newest(cache, node, now)
        if run >= 0:
            state.runs[run, SEEN] = cache.nodes[node].uses
            start = cache.runs[run].start
            while start < cache.nodes[node].resident:
                one = stretch(left_once, node, start)
                two = stretch(left_twice, node, start)
                end = min(abs(one), abs(two), cache.nodes[node].resident)
                part = run if end == cache.nodes[node].resident else cut(cache, state, run, end)
                state.runs[part, RETURNED] = one > 0 or two > 0
                if one < 0 and two < 0:
                    state.nodes[node, TALLY] += end - start
                start = end
            state.scalars[ONCE] += state.nodes[node, TALLY]
        drop(left_once, node)
        drop(left_twice, node)


def on_remove(state, cache, node, blocks, now, expired):
    """Take expired blocks out of T1."""
    if expired:
        state.scalars[ONCE] -= state.nodes[node, TALLY]
        state.nodes[node, TALLY] = 0


def take(state, cache, node, blocks, now):
    """Remember what leaves, and stop where the turn changes."""
    scalars = state.scalars
    left_once, left_twice = ghosts(state)
    end = cache.nodes[node].resident
    if twice(state, cache, node):
        bury(left_twice, node, end - blocks, end, 0)
        trim(left_twice, 2 * cache.capacity)
        return blocks
    if once_first(state):
        most = math.ceil(scalars[ONCE] - scalars[TARGET])
        tie = scalars[TIE_ONCE] > 0 and scalars[ONCE] - most == scalars[TARGET]
        blocks = min(blocks, most + tie)
    scalars[ONCE] -= blocks
    state.nodes[node, TALLY] -= blocks
    bury(left_once, node, end - blocks, end, 0)
    trim(left_once, cache.capacity)
    return blocks


def setup(trace, capacity, seed):
    """Return the size of T1 and its target, and the list of each run."""
    ghost = new_ghost(trace, 2 * capacity)
    return new_state(
        trace,
        scalars=[0.0, 0.0, 0.0],
        nodes=1,
        runs=2,
        capacity=capacity,
        table=np.concatenate([ghost, ghost]),
    )


POLICY = Policy(
    name="arc",
    summary="Lists of blocks used once and more often; what is missed moves their shares.",
    source="Megiddo and Modha 2003 (ARC)",
    rank=rank,
    setup=setup,
    on_request=on_request,
    on_touch=on_touch,
    on_remove=on_remove,
    take=take,
    turn=turn,
)
