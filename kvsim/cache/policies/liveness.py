"""Liveness: LRU until keeping the liveliest chains is seen to pay, then that.

Source: ours; the index is Gittins' (1979) with hazards learned by
age and class as in LHD (Beckmann et al., NSDI'18). Online, without an oracle and
without session labels: it watches chains, resident or not.

Classes. A request continues the chain that ends in the deepest node it shares
with earlier ones. A block is classed by the running mean of ln(1 + gap) of its
chain (`weight` of the newest; none before the first return), and by whether a
later request went past it: took its parent and left it out. Its age counts from
its last use, or from when it was first passed.

Index. For each class the hazard of a use by age, in 64 bins each 1.3 times as
long as the one before, is what an actuary counts: uses / blocks at risk, those
still waiting included, shrunk towards all classes alike and these towards a
fixed prior, by `prior` mean chains. The worth of a block at an age is
Gittins' index, the greatest over horizons of P(use by then) / E[time kept]. It
is what a block earns a second of residence, so no pressure enters it. It is
not always falling: a chain that has just run is not back at once, and when even
the typical gap is longer than LRU keeps anything, LRU keeps nothing long enough.

Switch. Every `period` requests two caches that hold what is younger than T, or
what never fell below index L, are compared: T and L are set so that the blocks
waiting now would fill the capacity, and uses are counted with the index that was in
force when they came, so nothing is judged on what it was fitted to. (Counts fade by
`memory` a period.) The index rules while its cache hits more than
LRU's by `factor`, and by `margin` of LRU's misses that are no first uses; half of
both is enough to go on. Else every leaf ranks alike, which is LRU.

Parameters: `weight`, `memory`, `margin`, `factor` are ratios; `prior` is in mean
chains; `period` in requests; `warmup` in (faded) periods. Cost: O(nodes) a period,
O(leaves) a request that evicts.
"""

import numpy as np
from numba import njit

from kvsim.cache.policy import STEADY, Policy, new_state

BINS, FIRST, GROWTH = 64, 0.25, 1.3  # ages: the first bin is FIRST seconds long
WIDTHS = np.diff(FIRST * GROWTH ** np.arange(BINS), prepend=0.0)
LEVELS, FINENESS, TOP = 160, 6.0, 24  # indices: so many levels a factor e, from exp(TOP / FINENESS)
SPEEDS = 8  # classes by mean gap, each 3 times as long as the one before
CLASSES = 2 * (SPEEDS + 1)  # odd: passed
PRIOR = (0.12, 0.02)  # hazard a bin, of blocks not passed and passed

# Scalars; the parameters come first.
WEIGHT, GROUPS, PERIOD, MEMORY, MARGIN, FACTOR, WARMUP = range(7)
NEXT, BLOCKS, REQUESTS, LOOKS, RULES, RULED = range(7, 13)
# Columns of a node; START is when its age began to count, CHILD goes on the latest chain.
SEEN, LAST, START, CLASS, MEAN, CHILD = range(6)
# Rows of the table: one a class, then single ones.
USES, LEFT, WAITING, INDEX, LEVEL = (i * CLASSES for i in range(5))
USED_BY_AGE, HELD_BY_AGE, USED_BY_INDEX, HELD_BY_INDEX, NEW_BY_AGE, NEW_BY_INDEX = range(
    5 * CLASSES, 5 * CLASSES + 6
)
# Then scratch, two rows each but for the last.
HELD, EVERY_USE, EVERY_WAIT, COMMON, HAZARD = range(5 * CLASSES + 6, 5 * CLASSES + 16, 2)
ROWS = HAZARD + 1


@njit(cache=True)
def age_bin(age):
    """Return the bin of an age in seconds."""
    if age <= FIRST:
        return 0
    return min(int(np.log(age / FIRST) / np.log(GROWTH)) + 1, BINS - 1)


@njit(cache=True)
def level_of(index):
    """Return the level of an index (uses a second), the highest first."""
    if index <= 1e-9:
        return LEVELS - 1
    return min(max(int(-np.log(index) * FINENESS) + TOP, 0), LEVELS - 1)


@njit(cache=True)
def class_of(returned, mean):
    """Return the class of a chain not passed, of a mean of ln(1 + gap)."""
    return 2 * (1 + min(int(mean / np.log(3.0)), SPEEDS - 1)) if returned else 0


@njit(cache=True)
def fill(used, held, capacity):
    """Return the uses of the first of `held` blocks that fill the capacity."""
    room, hits = capacity, 0.0
    for i in range(len(held)):
        if held[i] >= room:
            return hits + used[i] * room / held[i] if held[i] > 0 else hits
        room -= held[i]
        hits += used[i]
    return hits


@njit(cache=True)
def hazards(uses, waiting, prior, strength, out):
    """Set `out` to the hazard of each age bin, shrunk towards a prior."""
    risk = 0.0
    for i in range(BINS - 1, -1, -1):
        risk += uses[i] + 0.5 * waiting[i]
        out[i] = (uses[i] + strength * prior[i]) / (risk + strength)
        risk += 0.5 * waiting[i]


@njit(cache=True)
def gittins(hazard, out):
    """Set `out` to the index at each age: the best P(use) / E[time] over horizons."""
    for age in range(BINS):
        alive, use, time, best = 1.0, 0.0, 0.0, 0.0
        for i in range(age, BINS):
            width = 0.5 * WIDTHS[i] if i == age else WIDTHS[i]
            ends = alive * hazard[i]
            use += ends
            time += width * (alive - 0.5 * ends)
            alive -= ends
            best = max(best, use / time)
        out[age] = best


@njit(cache=True)
def look(state, cache, time):
    """Count what waits, decide who rules, and learn the indices anew."""
    scalars, table = state.scalars, state.sessions
    held = table[HELD : HELD + 2]
    held[:] = 0.0
    waiting = table[WAITING : WAITING + CLASSES]
    waiting[:] = 0.0
    for node in range(len(state.nodes)):
        row = state.nodes[node]
        if row[SEEN] > 0:
            blocks = cache.nodes[node].length
            kind, age = int(row[CLASS]), age_bin(time - row[START])
            waiting[kind, age] += blocks
            held[0, age if row[START] == row[LAST] else age_bin(time - row[LAST])] += blocks
            held[1, int(table[LEVEL + kind, age])] += blocks
    for kept, new in (
        (HELD_BY_AGE, held[0]),
        (HELD_BY_INDEX, held[1]),
        (USED_BY_AGE, table[NEW_BY_AGE]),
        (USED_BY_INDEX, table[NEW_BY_INDEX]),
    ):
        for i in range(LEVELS):
            table[kept, i] = table[kept, i] * scalars[MEMORY] + new[i]
    table[NEW_BY_AGE : NEW_BY_INDEX + 1] = 0.0
    scalars[LOOKS] = scalars[LOOKS] * scalars[MEMORY] + 1
    decide(scalars, table, cache.capacity)
    learn(scalars, table)


@njit(cache=True)
def decide(scalars, table, capacity):
    """Let the index rule if it would have hit more than LRU."""
    filled = capacity * scalars[LOOKS]
    by_age = fill(table[USED_BY_AGE], table[HELD_BY_AGE], filled)
    by_index = fill(table[USED_BY_INDEX], table[HELD_BY_INDEX], filled)
    every = fill(table[USED_BY_AGE], table[HELD_BY_AGE], np.inf)
    ease = 0.5 if scalars[RULES] else 1.0
    scalars[RULES] = (
        scalars[LOOKS] > scalars[WARMUP]
        and by_index - by_age >= ease * scalars[MARGIN] * (every - by_age)
        and by_index - by_age >= ease * (scalars[FACTOR] - 1) * by_age
    )


@njit(cache=True)
def learn(scalars, table):
    """Set the index of each class and age, and the level of the lowest on the way there."""
    strength = scalars[GROUPS] * max(scalars[BLOCKS], 1.0) / max(scalars[REQUESTS], 1.0)
    uses = table[EVERY_USE : EVERY_USE + 2, :BINS]
    waiting = table[EVERY_WAIT : EVERY_WAIT + 2, :BINS]
    uses[:] = 0.0
    waiting[:] = 0.0
    for kind in range(CLASSES):
        for i in range(BINS):
            table[WAITING + kind, i] += table[LEFT + kind, i]
            uses[kind % 2, i] += table[USES + kind, i]
            waiting[kind % 2, i] += table[WAITING + kind, i]
    common, hazard = table[COMMON : COMMON + 2, :BINS], table[HAZARD, :BINS]
    for passed in range(2):
        hazard[:] = PRIOR[passed]
        hazards(uses[passed], waiting[passed], hazard, strength, common[passed])
    for kind in range(CLASSES):
        hazards(table[USES + kind], table[WAITING + kind], common[kind % 2], strength, hazard)
        gittins(hazard, table[INDEX + kind])
        floor = np.inf
        for i in range(BINS):
            floor = min(floor, table[INDEX + kind, i])
            table[LEVEL + kind, i] = level_of(floor)


def rank(state, cache, node, now):
    """Rank by the index, or all alike."""
    if not state.scalars[RULES]:
        return 0.0
    row = state.nodes[node]
    age = age_bin(cache.requests[now].arrival - row[START])
    return state.sessions[INDEX + int(row[CLASS]), age]


@njit(cache=True)
def pass_over(state, cache, node, time):
    """Note that a request left out `node` and the chain below, but not the blocks above."""
    while node >= 0:
        row = state.nodes[node]
        kind = int(row[CLASS])
        if kind % 2 == 0:
            age = age_bin(time - row[START])
            state.sessions[LEFT + kind, age] += cache.nodes[node].length
            row[CLASS], row[START] = kind + 1, time
        node = int(row[CHILD])


def on_request(state, cache, now, hit_blocks):
    """Count the uses of the chain's blocks, class them anew, and look around in time."""
    scalars, table, nodes = state.scalars, state.sessions, state.nodes
    time = cache.requests[now].arrival
    terminal = int(cache.requests[now].terminal)
    if terminal >= 0:
        scalars[BLOCKS] += cache.nodes[terminal].depth + cache.nodes[terminal].length
        scalars[REQUESTS] += 1
    node = terminal
    while node >= 0 and nodes[node, SEEN] == 0:
        node = int(cache.nodes[node].parent)
    kind, mean = 0, 0.0
    returned = node >= 0
    if returned:
        mean = np.log(1 + time - nodes[node, LAST])
        if nodes[node, CLASS] > 1:
            mean = nodes[node, MEAN] + scalars[WEIGHT] * (mean - nodes[node, MEAN])
        kind = class_of(returned, mean)
    child, node = -1, terminal
    while node >= 0:
        row = nodes[node]
        if row[SEEN] > 0:
            blocks = cache.nodes[node].length
            before, age = int(row[CLASS]), age_bin(time - row[START])
            table[USES + before, age] += blocks
            table[NEW_BY_INDEX, int(table[LEVEL + before, age])] += blocks
            table[NEW_BY_AGE, age_bin(time - row[LAST])] += blocks
            if row[CHILD] != child:
                pass_over(state, cache, int(row[CHILD]), time)
        row[SEEN], row[LAST], row[START] = 1, time, time
        row[CLASS], row[MEAN], row[CHILD] = kind, mean, child
        child, node = node, int(cache.nodes[node].parent)
    if now >= scalars[NEXT]:
        look(state, cache, time)
        scalars[NEXT] = now + scalars[PERIOD]
        scalars[RULED] = max(scalars[RULED], scalars[RULES])
    cache.counts[STEADY] = scalars[RULED] == 0  # LRU so far: all ranks are 0


def setup(trace, capacity, seed, weight, prior, period, memory, margin, factor, warmup):
    """Return parameters, nodes, and the table in place of the sessions."""
    scalars = [weight, prior, period, memory, margin, factor, warmup, *[0.0] * 6]
    state = new_state(trace, scalars=scalars, nodes=6)
    state.nodes[:, CHILD] = -1
    table = np.zeros((ROWS, LEVELS))
    table[LEVEL : LEVEL + CLASSES] = LEVELS - 1  # of an index of 0
    return state._replace(sessions=table)


POLICY = Policy(
    name="liveness",
    summary="LRU, or the least uses a second of residence, whichever was seen to hit more.",
    source="ours; Gittins 1979 and LHD (Beckmann et al., NSDI'18) for the index",
    rank=rank,
    setup=setup,
    on_request=on_request,
    rerank="request",
    parameters={
        "weight": 0.3,
        "prior": 10.0,
        "period": 256,
        "memory": 0.9,
        "margin": 0.05,
        "factor": 1.5,
        "warmup": 4.0,
    },
)
