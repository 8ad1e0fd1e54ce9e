"""S3-FIFO: a small queue for newcomers, a main queue, and a ghost queue.

Source: Yang et al. 2023. Blocks enter the small queue (10 % of the cache), or
the main queue if the ghost queue remembers them. While the small queue is
full, its oldest leaf is looked at: used twice or more since it entered, it
moves to the main queue, else it goes and the ghost queue (90 % of the cache's
blocks) remembers it. Otherwise the oldest leaf of the main queue is looked at:
unused it goes, else it enters again with one use less. Three uses count at
most. Cost: O(log leaves) a leaf looked at. Adapted: only evictable leaves are
looked at; if the queue whose turn it is has none, those of the other are. What
one request inserted stands in one place of its queue, the least recently used
leaf of it first; a leaf that moves takes along the blocks above it that stand
there too with as many uses, for they stay because of it. With `fill_main`, as
libCacheSim has it, newcomers enter the main queue once the small one is full,
until something was evicted.
"""

from kvsim.cache.policies.ghosts import bury, claim_missing, drop, new_ghost, stretch, trim
from kvsim.cache.policies.segments import above, cut, newest
from kvsim.cache.policy import EVICTED, QUEUE, Policy, new_state, order_of

SMALL, MOVES, SMALL_SHARE, GHOST_SHARE, FILL_MAIN = range(5)
TALLY = 0  # of a node's blocks, those in the small queue
MAIN, ENTERED, USES, SEEN = range(4)
MOST_MOVES = 2**20  # that are told apart within a request
SMALL_FIRST = order_of(0, 1, 2, 3)
MAIN_FIRST = order_of(1, 0, 2, 3)


def rank(state, cache, node, now):
    """Rank by queue, then by entry into it."""
    run = cache.nodes[node].run
    return state.runs[run, MAIN] * QUEUE + state.runs[run, ENTERED]


def turn(state, cache, now):
    """Look at the small queue while it holds its share."""
    full = state.scalars[SMALL] >= state.scalars[SMALL_SHARE]
    return SMALL_FIRST if full else MAIN_FIRST


def on_request(state, cache, now, hit_blocks):
    """Ask the ghost queue about the missing blocks."""
    state.scalars[MOVES] = 0
    claim_missing(state.table, cache, now)


def on_touch(state, cache, first, last, now):
    """Enter what was inserted: into the main queue what was remembered, the rest into the small."""
    filling = state.scalars[FILL_MAIN] and cache.counts[EVICTED] == 0
    for level in range(last - 1, first - 1, -1):  # root first, as blocks were inserted
        node = cache.path[level]
        run = newest(cache, node, now)
        if run >= 0:
            state.runs[run, ENTERED] = (now + 1.0) * MOST_MOVES - 1
            state.runs[run, USES] = 0.0
            state.runs[run, SEEN] = cache.nodes[node].uses
            start = cache.runs[run].start
            while start < cache.nodes[node].resident:
                until = stretch(state.table, node, start)
                end = min(abs(until), cache.nodes[node].resident)
                to_main = until > 0
                if not to_main and filling:
                    room = int(state.scalars[SMALL_SHARE] - state.scalars[SMALL])
                    to_main = room <= 0
                    end = end if to_main else min(end, start + room)
                part = run if end == cache.nodes[node].resident else cut(cache, state, run, end)
                state.runs[part, MAIN] = to_main
                if not to_main:
                    state.scalars[SMALL] += end - start
                    state.nodes[node, TALLY] += end - start
                start = end
        drop(state.table, node)


def on_remove(state, cache, node, blocks, now, expired):
    """Take expired blocks out of the small queue."""
    if expired:
        state.scalars[SMALL] -= state.nodes[node, TALLY]
        state.nodes[node, TALLY] = 0


def take(state, cache, node, blocks, now):
    """Let unused blocks go, or move a leaf on."""
    scalars, runs = state.scalars, state.runs
    run = cache.nodes[node].run
    main, entered = runs[run, MAIN], runs[run, ENTERED]
    uses = min(3.0, runs[run, USES] + cache.nodes[node].uses - runs[run, SEEN])
    end = cache.nodes[node].resident
    if uses < (1 if main else 2):
        if not main:
            if scalars[SMALL] >= scalars[SMALL_SHARE]:
                blocks = min(blocks, int(scalars[SMALL] - scalars[SMALL_SHARE]) + 1)
            scalars[SMALL] -= blocks
            state.nodes[node, TALLY] -= blocks
            bury(state.table, node, end - blocks, end, 0)
            trim(state.table, int(scalars[GHOST_SHARE]))
        return blocks
    while (
        run >= 0
        and runs[run, MAIN] == main
        and runs[run, ENTERED] == entered
        and min(3.0, runs[run, USES] + cache.nodes[node].uses - runs[run, SEEN]) == uses
    ):
        if not main:
            scalars[SMALL] -= end - cache.runs[run].start
            state.nodes[node, TALLY] -= end - cache.runs[run].start
        runs[run, MAIN] = 1.0
        runs[run, ENTERED] = float(now) * MOST_MOVES + min(scalars[MOVES], MOST_MOVES - 2.0)
        runs[run, USES] = uses - 1 if main else 0.0
        runs[run, SEEN] = cache.nodes[node].uses
        if cache.flat:
            break
        node, run, end = above(cache, node, run)
    scalars[MOVES] += 1
    return 0


def setup(trace, capacity, seed, small, ghost, fill_main):
    """Return the queues' sizes, and where each run stands."""
    remembered = int(ghost * capacity)
    return new_state(
        trace,
        scalars=[0.0, 0.0, int(small * capacity), remembered, fill_main],
        nodes=1,
        runs=4,
        capacity=capacity,
        table=new_ghost(trace, remembered),
    )


POLICY = Policy(
    name="s3-fifo",
    summary="Newcomers pass a small queue before they may stay in the main one; a ghost remembers.",
    source="Yang et al. 2023 (S3-FIFO)",
    rank=rank,
    setup=setup,
    on_request=on_request,
    on_touch=on_touch,
    on_remove=on_remove,
    take=take,
    turn=turn,
    parameters={"small": 0.1, "ghost": 0.9, "fill_main": False},
)
