"""W-TinyLFU: newcomers must be asked for more often than what they displace.

Source: Einziger, Friedman, Manes 2017. Blocks enter a window (LRU, 1 % of the
cache). While it holds more, its least recently used leaf contends with the
victim of the main part (SLRU, 80 % protected): the one asked for less often
goes, the contender at a tie. How often is counted for ever, up to 15, and
halved after every 10 accesses a block of the cache. Cost: O(log leaves) a leaf
looked at. Adapted: only evictable leaves contend and go. A request's blocks are pinned, so
newcomers contend when the next request needs room. Until the first eviction
newcomers enter the main part. A contender that wins takes along the blocks
above it in the window that were used last together with it, as far as there
are too many. Counts are exact, where the paper has a sketch. With no leaf in
the main part the contender goes, and other leaves of the window come last. The
main part is that of `kvsim.cache.policies.slru`.
"""

import numpy as np
from numba import njit

from kvsim.cache.policies.segments import above, cut, found, newest
from kvsim.cache.policies.slru import (
    ENTERED,
    PROTECTED,
    PROTECTED_SHARE,
    SEEN,
    TALLY,
    demote,
    protected,
)
from kvsim.cache.policy import EVICTED, QUEUE, Policy, new_state, order_of

WINDOW, WINDOW_SHARE, CONTENDER, LOST, MISPLACED, ASKED, PERIOD, HALVINGS = range(2, 10)
WINDOW_TALLY, COUNT, HALVED = range(1, 4)  # TALLY is 0
IN_WINDOW = np.inf  # as SEEN: no use there protects
NOBODY = -1
MOST = 15
# Queues: probationary and protected (0, 1), window (2), contender (3). Orders by whether there
# is too much in the protected segment.
MAIN_FIRST = order_of(0, 1, 3, 2), order_of(1, 0, 3, 2)
WINDOW_FIRST = order_of(2, 0, 1, 3), order_of(2, 1, 0, 3)
CONTENDER_FIRST = order_of(3, 0, 1, 2), order_of(3, 1, 0, 2)
MISPLACED_FIRST = order_of(3, 2, 0, 1), order_of(3, 2, 1, 0)


@njit(cache=True)
def count(state, node):
    """Return how often a node was asked for, halved as often as is due."""
    halvings = min(int(state.scalars[HALVINGS] - state.nodes[node, HALVED]), 8)
    return int(state.nodes[node, COUNT]) >> halvings


@njit(cache=True)
def admit(state, cache, node, now):
    """Move what is too much in the window to the main part, from a leaf upwards."""
    excess = int(state.scalars[WINDOW] - state.scalars[WINDOW_SHARE])
    last = cache.nodes[node].last
    run = cache.nodes[node].run
    end = cache.nodes[node].resident
    while (
        excess > 0
        and run >= 0
        and cache.nodes[node].last == last
        and state.runs[run, SEEN] == IN_WINDOW
    ):
        blocks = end - cache.runs[run].start
        if blocks > excess:
            cut(cache, state, run, end - excess)
            blocks = excess
        state.runs[run, SEEN] = cache.nodes[node].uses
        state.runs[run, ENTERED] = now
        state.scalars[WINDOW] -= blocks
        state.nodes[node, WINDOW_TALLY] -= blocks
        excess -= blocks
        if cache.flat:
            break
        node, run, end = above(cache, node, run)


def rank(state, cache, node, now):
    """Rank by queue, in the probationary one by entry."""
    run = cache.nodes[node].run
    if state.runs[run, SEEN] == IN_WINDOW:
        return (3 if state.scalars[CONTENDER] == node else 2) * QUEUE
    return QUEUE if protected(state, cache, node, run) else state.runs[run, ENTERED]


def turn(state, cache, now):
    """Settle a contest, then make room in the window, then in the protected segment."""
    scalars = state.scalars
    full = int(scalars[PROTECTED] > scalars[PROTECTED_SHARE])
    window_first = scalars[CONTENDER] == NOBODY and scalars[WINDOW] > scalars[WINDOW_SHARE]
    if scalars[MISPLACED] != NOBODY and window_first:
        return MISPLACED_FIRST[full]
    if scalars[MISPLACED] != NOBODY or scalars[LOST] > 0:
        return CONTENDER_FIRST[full]
    return WINDOW_FIRST[full] if window_first else MAIN_FIRST[full]


def on_request(state, cache, now, hit_blocks):
    """Halve the counts when it is time."""
    terminal = cache.requests[now].terminal
    if terminal >= 0:
        state.scalars[ASKED] += cache.nodes[terminal].depth + cache.nodes[terminal].length
    if state.scalars[ASKED] >= state.scalars[PERIOD]:
        state.scalars[ASKED] = 0
        state.scalars[HALVINGS] += 1


def on_touch(state, cache, first, last, now):
    """Count, protect what was resident in the main part, and enter what was inserted."""
    for level in range(first, last):
        node = cache.path[level]
        state.nodes[node, COUNT] = min(count(state, node) + 1, MOST)
        state.nodes[node, HALVED] = state.scalars[HALVINGS]
        blocks = found(cache, node, now) - state.nodes[node, WINDOW_TALLY]
        state.scalars[PROTECTED] += blocks - state.nodes[node, TALLY]
        state.nodes[node, TALLY] = blocks
        run = newest(cache, node, now)
        if run >= 0 and cache.counts[EVICTED] == 0:
            state.runs[run, SEEN] = cache.nodes[node].uses
            state.runs[run, ENTERED] = now
        elif run >= 0:
            blocks = cache.nodes[node].resident - cache.runs[run].start
            state.scalars[WINDOW] += blocks
            state.nodes[node, WINDOW_TALLY] += blocks
            state.runs[run, SEEN] = IN_WINDOW


def on_remove(state, cache, node, blocks, now, expired):
    """Take expired blocks out of the window and the protected segment."""
    if expired:
        state.scalars[WINDOW] -= state.nodes[node, WINDOW_TALLY]
        state.scalars[PROTECTED] -= state.nodes[node, TALLY]
        state.nodes[node, WINDOW_TALLY] = 0
        state.nodes[node, TALLY] = 0


def take(state, cache, node, blocks, now):
    """Name the contender, let it contend, or let a leaf go."""
    scalars = state.scalars
    run = cache.nodes[node].run
    if scalars[MISPLACED] == node:  # still among the contenders, which it was
        scalars[MISPLACED] = NOBODY
        return 0
    excess = int(scalars[WINDOW] - scalars[WINDOW_SHARE])
    if state.runs[run, SEEN] == IN_WINDOW:
        if scalars[CONTENDER] == NOBODY and excess > 0:
            scalars[CONTENDER] = node
            scalars[MISPLACED] = NOBODY
            return 0
        scalars[CONTENDER] = NOBODY
        scalars[LOST] = 0
        if excess > 0:
            blocks = min(blocks, excess)
        scalars[WINDOW] -= blocks
        state.nodes[node, WINDOW_TALLY] -= blocks
        return blocks
    if protected(state, cache, node, run) and scalars[PROTECTED] > scalars[PROTECTED_SHARE]:
        demote(state, cache, node, now)
        return 0
    if scalars[CONTENDER] != NOBODY:
        contender = int(scalars[CONTENDER])
        if count(state, contender) <= count(state, node):
            scalars[LOST] = 1
            return 0
        admit(state, cache, contender, now)
        scalars[CONTENDER] = NOBODY
        scalars[MISPLACED] = contender
        blocks = min(blocks, 1)  # the next victim may be what was just let in
    if protected(state, cache, node, run):
        scalars[PROTECTED] -= blocks
        state.nodes[node, TALLY] -= blocks
    return blocks


def setup(trace, capacity, seed, window, protected):
    """Return the sizes of the parts, and where each run stands."""
    size = max(1, int(window * capacity))
    main = [0.0, int(protected * (capacity - size))]
    window = [0.0, size, NOBODY, 0.0, NOBODY]
    counts = [0.0, 10.0 * capacity, 0.0]
    return new_state(trace, scalars=main + window + counts, nodes=4, runs=2, capacity=capacity)


POLICY = Policy(
    name="w-tinylfu",
    summary="Newcomers leave a small window only if asked for more often than what they displace.",
    source="Einziger et al. 2017 (W-TinyLFU)",
    rank=rank,
    setup=setup,
    on_request=on_request,
    on_touch=on_touch,
    on_remove=on_remove,
    take=take,
    turn=turn,
    parameters={"window": 0.01, "protected": 0.8},
)
