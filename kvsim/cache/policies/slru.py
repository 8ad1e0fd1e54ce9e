"""SLRU: a use protects a block; the protected part is bounded.

Source: Karedla et al. 1994. Blocks enter the probationary segment; a use moves
them to the protected one, which holds 80 % of the cache. What is too much there
goes back, the least recently used first, to the young end of the probationary
segment, whose old end goes first. Cost: O(log leaves) a leaf looked at. Adapted:
only evictable leaves are looked at, and blocks go back when room is needed; a
leaf that goes back takes along the protected blocks above it that were used
last together with it, as far as there are too many. With no probationary leaf
the least recently used protected one goes.
"""

from numba import njit

from kvsim.cache.policies.segments import above, cut, found, newest
from kvsim.cache.policy import QUEUE, Policy, new_state, order_of

PROTECTED, PROTECTED_SHARE = range(2)
TALLY = 0  # of a node's blocks, those protected
SEEN, ENTERED = range(2)
PROBATIONARY_FIRST = order_of(0, 1, 2, 3)
PROTECTED_FIRST = order_of(1, 0, 2, 3)


@njit(cache=True)
def protected(state, cache, node, run):
    """Say whether a run was used since it entered the probationary segment."""
    return cache.nodes[node].uses > state.runs[run, SEEN]


@njit(cache=True)
def demote(state, cache, node, now):
    """Move what is too much in the protected segment back, from a leaf upwards."""
    excess = int(state.scalars[PROTECTED] - state.scalars[PROTECTED_SHARE])
    last = cache.nodes[node].last
    run = cache.nodes[node].run
    end = cache.nodes[node].resident
    while (
        excess > 0
        and run >= 0
        and cache.nodes[node].last == last
        and protected(state, cache, node, run)
    ):
        blocks = end - cache.runs[run].start
        if blocks > excess:
            cut(cache, state, run, end - excess)
            blocks = excess
        state.runs[run, SEEN] = cache.nodes[node].uses
        state.runs[run, ENTERED] = now
        state.scalars[PROTECTED] -= blocks
        state.nodes[node, TALLY] -= blocks
        excess -= blocks
        if cache.flat:
            break
        node, run, end = above(cache, node, run)


def rank(state, cache, node, now):
    """Rank by segment, in the probationary one by entry."""
    run = cache.nodes[node].run
    return QUEUE if protected(state, cache, node, run) else state.runs[run, ENTERED]


def turn(state, cache, now):
    """Look at the protected segment while there is too much in it."""
    full = state.scalars[PROTECTED] > state.scalars[PROTECTED_SHARE]
    return PROTECTED_FIRST if full else PROBATIONARY_FIRST


def on_touch(state, cache, first, last, now):
    """Protect what was resident, and enter what was inserted."""
    for level in range(first, last):
        node = cache.path[level]
        blocks = found(cache, node, now)
        state.scalars[PROTECTED] += blocks - state.nodes[node, TALLY]
        state.nodes[node, TALLY] = blocks
        run = newest(cache, node, now)
        if run >= 0:
            state.runs[run, SEEN] = cache.nodes[node].uses
            state.runs[run, ENTERED] = now


def on_remove(state, cache, node, blocks, now, expired):
    """Take expired blocks out of the protected segment."""
    if expired:
        state.scalars[PROTECTED] -= state.nodes[node, TALLY]
        state.nodes[node, TALLY] = 0


def take(state, cache, node, blocks, now):
    """Let a leaf go, or move it back."""
    if protected(state, cache, node, cache.nodes[node].run):
        if state.scalars[PROTECTED] > state.scalars[PROTECTED_SHARE]:
            demote(state, cache, node, now)
            return 0
        state.scalars[PROTECTED] -= blocks
        state.nodes[node, TALLY] -= blocks
    return blocks


def setup(trace, capacity, seed, protected):
    """Return the sizes of the protected segment, and where each run stands."""
    return new_state(
        trace, scalars=[0.0, int(protected * capacity)], nodes=1, runs=2, capacity=capacity
    )


POLICY = Policy(
    name="slru",
    summary="Blocks used again are protected, up to 80 % of the cache.",
    source="Karedla et al. 1994 (SLRU)",
    rank=rank,
    setup=setup,
    on_touch=on_touch,
    on_remove=on_remove,
    take=take,
    turn=turn,
    parameters={"protected": 0.8},
)
