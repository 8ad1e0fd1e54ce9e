"""Runs as the unit of queues: cutting one in two, and walking up a chain.

Blocks that were inserted together and have one history since stand in one
place of a queue. Where only part of them moves, the run is cut.
"""

from numba import njit

from kvsim.cache.policy import FREE_RUN, RUNS


@njit(cache=True)
def newest(cache, node, now):
    """Return the run that request `now` inserted into a node, -1 if there is none."""
    run = cache.nodes[node].run
    return run if run >= 0 and cache.runs[run].birth == now else -1


@njit(cache=True)
def found(cache, node, now):
    """Return how many blocks of a node were resident before request `now` inserted more."""
    run = newest(cache, node, now)
    return cache.runs[run].start if run >= 0 else cache.nodes[node].resident


@njit(cache=True)
def cut(cache, state, run, at):
    """Make the blocks of a run before block `at` of the node a run of their own; return it."""
    runs, counts = cache.runs, cache.counts
    upper = counts[FREE_RUN]
    if upper < 0:
        upper = counts[RUNS]
        counts[RUNS] += 1
    else:
        counts[FREE_RUN] = runs[upper].below
    runs[upper].start = runs[run].start
    runs[upper].birth = runs[run].birth
    runs[upper].uses = runs[run].uses
    runs[upper].below = runs[run].below
    runs[run].start = at
    runs[run].below = upper
    for column in range(state.runs.shape[1]):
        state.runs[upper, column] = state.runs[run, column]
    return upper


@njit(cache=True)
def above(cache, node, run):
    """Return the (node, run, end) that holds the block above a run's first; run -1 if none."""
    start = cache.runs[run].start
    if start > 0:
        return node, cache.runs[run].below, start
    parent = cache.nodes[node].parent
    if parent < 0:
        return parent, parent, parent
    return parent, cache.nodes[parent].run, cache.nodes[parent].resident
