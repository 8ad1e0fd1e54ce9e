"""2Q: newcomers in a FIFO queue; what returns after leaving it, in an LRU queue.

Source: Johnson and Shasha 1994 (full version). Blocks enter A1in, or Am if
A1out remembers them. While A1in holds more than a quarter of the cache, its
oldest leaf goes and A1out, half as long as the cache, remembers it; otherwise
the least recently used leaf of Am goes. A use within A1in changes nothing.
Cost: O(log leaves) an eviction. Adapted: only evictable leaves may go; if the
queue whose turn it is has none, those of the other may. What one request
inserted stands in one place of A1in, the least recently used leaf of it first.
"""

from kvsim.cache.policies.ghosts import bury, claim_missing, drop, new_ghost, stretch, trim
from kvsim.cache.policies.segments import cut, newest
from kvsim.cache.policy import QUEUE, Policy, new_state, order_of

RECENT, RECENT_SHARE, GHOST_SHARE = range(3)
TALLY = 0  # of a node's blocks, those in A1in
FREQUENT = 0
RECENT_FIRST = order_of(0, 1, 2, 3)
FREQUENT_FIRST = order_of(1, 0, 2, 3)


def rank(state, cache, node, now):
    """Rank by queue, in A1in by insertion."""
    run = cache.nodes[node].run
    return QUEUE if state.runs[run, FREQUENT] > 0 else float(cache.runs[run].birth)


def turn(state, cache, now):
    """Take from A1in while it holds more than its share."""
    full = state.scalars[RECENT] > state.scalars[RECENT_SHARE]
    return RECENT_FIRST if full else FREQUENT_FIRST


def on_request(state, cache, now, hit_blocks):
    """Ask A1out about the missing blocks."""
    claim_missing(state.table, cache, now)


def on_touch(state, cache, first, last, now):
    """Enter what was inserted: into Am what was remembered, the rest into A1in."""
    for level in range(first, last):
        node = cache.path[level]
        run = newest(cache, node, now)
        if run >= 0:
            start = cache.runs[run].start
            while start < cache.nodes[node].resident:
                until = stretch(state.table, node, start)
                end = min(abs(until), cache.nodes[node].resident)
                part = run if end == cache.nodes[node].resident else cut(cache, state, run, end)
                state.runs[part, FREQUENT] = until > 0
                if until < 0:
                    state.scalars[RECENT] += end - start
                    state.nodes[node, TALLY] += end - start
                start = end
        drop(state.table, node)


def on_remove(state, cache, node, blocks, now, expired):
    """Take expired blocks out of A1in."""
    if expired:
        state.scalars[RECENT] -= state.nodes[node, TALLY]
        state.nodes[node, TALLY] = 0


def take(state, cache, node, blocks, now):
    """Remember what leaves A1in, and stop where the turn changes."""
    scalars = state.scalars
    if state.runs[cache.nodes[node].run, FREQUENT] > 0:
        return blocks
    if scalars[RECENT] > scalars[RECENT_SHARE]:
        blocks = min(blocks, int(scalars[RECENT] - scalars[RECENT_SHARE]))
    end = cache.nodes[node].resident
    scalars[RECENT] -= blocks
    state.nodes[node, TALLY] -= blocks
    bury(state.table, node, end - blocks, end, 0)
    trim(state.table, int(scalars[GHOST_SHARE]))
    return blocks


def setup(trace, capacity, seed, recent, ghost):
    """Return the queues' sizes, and the queue of each run."""
    remembered = int(ghost * capacity)
    return new_state(
        trace,
        scalars=[0.0, int(recent * capacity), remembered],
        nodes=1,
        runs=1,
        capacity=capacity,
        table=new_ghost(trace, remembered),
    )


POLICY = Policy(
    name="2q",
    summary="Newcomers in a FIFO queue, returners in an LRU queue.",
    source="Johnson and Shasha 1994 (2Q)",
    rank=rank,
    setup=setup,
    on_request=on_request,
    on_touch=on_touch,
    on_remove=on_remove,
    take=take,
    turn=turn,
    parameters={"recent": 0.25, "ghost": 0.5},
)
