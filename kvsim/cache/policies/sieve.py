"""SIEVE: a hand goes over the leaves in order of insertion and spares what was used.

Source: Zhang et al. 2024. The hand starts at the block inserted first. A block
used since insertion, or since the hand passed last, stays where it is; the
first that was not used goes. Behind the block inserted last the hand starts
again. Cost: O(log leaves) a leaf passed. Adapted: the hand looks at evictable
leaves only. What one request inserted stands in one place, the least recently
used leaf of it first; a leaf that is spared takes along the blocks above it
that stand there too and were used too, for they stay because of it.
"""

from numba import njit

from kvsim.cache.policies.segments import above, newest
from kvsim.cache.policy import Policy, new_state

ROUND, HAND = range(2)
SEEN, NEXT_ROUND = range(2)


@njit(cache=True)
def round_of(state, cache, run):
    """Return in which round of the hand a run's turn comes."""
    passed = cache.runs[run].birth < state.scalars[HAND]
    return max(state.runs[run, NEXT_ROUND], state.scalars[ROUND] + passed)


def rank(state, cache, node, now):
    """Rank by the turn: round, then insertion."""
    run = cache.nodes[node].run
    return round_of(state, cache, run) * len(cache.requests) + cache.runs[run].birth


def on_touch(state, cache, first, last, now):
    """Enter what was inserted, as not used since."""
    for level in range(first, last):
        node = cache.path[level]
        run = newest(cache, node, now)
        if run >= 0:
            state.runs[run, SEEN] = cache.nodes[node].uses
            state.runs[run, NEXT_ROUND] = 0.0


def take(state, cache, node, blocks, now):
    """Move the hand here, and spare what was used since it passed last."""
    run = cache.nodes[node].run
    birth = cache.runs[run].birth
    turn = state.runs[run, NEXT_ROUND]
    state.scalars[ROUND] = round_of(state, cache, run)
    state.scalars[HAND] = birth
    while (
        run >= 0
        and cache.runs[run].birth == birth
        and state.runs[run, NEXT_ROUND] == turn
        and cache.nodes[node].uses > state.runs[run, SEEN]
    ):
        blocks = 0
        state.runs[run, SEEN] = cache.nodes[node].uses
        state.runs[run, NEXT_ROUND] = state.scalars[ROUND] + 1
        if cache.flat:
            break
        node, run, _ = above(cache, node, run)
    return blocks


def setup(trace, capacity, seed):
    """Return the hand, and of each run the uses seen and the next round."""
    return new_state(trace, scalars=[0.0, 0.0], runs=2, capacity=capacity)


POLICY = Policy(
    name="sieve",
    summary="A hand passes the leaves in order of insertion and evicts the first unused one.",
    source="Zhang et al. 2024 (SIEVE)",
    rank=rank,
    setup=setup,
    on_touch=on_touch,
    take=take,
)
