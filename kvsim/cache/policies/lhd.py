"""LHD: evict the leaf with the least expected hits per block and time.

Source: Beckmann et al. 2018 (least hit density). Blocks of a class that reach
an age without a hit are hit at this age, evicted, or reach the next; from the
counts of both events follows the hit density of (class, age): the hits still
expected over the time in the cache still expected. Cost: O(node visits) in all
plus O(leaves) a request that evicts. Adapted: all leaves are ranked where the
paper samples; age counts requests since the last use, in bins that grow
with it; classes are by uses of all time (1, 2, 3, more); densities follow anew
every 256 requests from counts that decay by 0.9 each time; until then LRU.
A block that expires counts as evicted.
"""

from numba import njit

from kvsim.cache.policy import Policy, new_state

CLASSES, BINS = 4, 128
HITS, EVICTIONS, NEW_HITS, NEW_EVICTIONS, DENSITY = (i * CLASSES * BINS for i in range(5))
PERIOD = 256  # requests
DECAY = 0.9
LAST = 0


@njit(cache=True)
def bin_of(age):
    """Return the bin of an age: one a request below 8, then four an octave."""
    if age < 8:
        return age
    octave = 0
    while age >> octave > 7:
        octave += 1
    return 4 * octave + (age >> octave)


@njit(cache=True)
def width_of(index):
    """Return how many ages a bin holds."""
    return 1 if index < 8 else 1 << ((index - 4) // 4)


@njit(cache=True)
def place(state, node, uses, now):
    """Return where the class and age of a node with so many uses stand in a histogram."""
    age = now - int(state.nodes[node, LAST])
    return (min(uses, CLASSES) - 1) * BINS + bin_of(age)


def rank(state, cache, node, now):
    """Rank by the hit density."""
    return state.scalars[DENSITY + place(state, node, cache.nodes[node].uses, now)]


def on_request(state, cache, now, hit_blocks):
    """Derive the densities anew, from the oldest age down."""
    values = state.scalars
    if now % PERIOD:
        return
    for i in range(CLASSES * BINS):
        values[HITS + i] = DECAY * values[HITS + i] + values[NEW_HITS + i]
        values[EVICTIONS + i] = DECAY * values[EVICTIONS + i] + values[NEW_EVICTIONS + i]
        values[NEW_HITS + i] = 0.0
        values[NEW_EVICTIONS + i] = 0.0
    for group in range(CLASSES):
        hits = 0.0
        events = 0.0
        lifetime = 0.0
        for index in range(BINS - 1, -1, -1):
            i = group * BINS + index
            hits += values[HITS + i]
            events += values[HITS + i] + values[EVICTIONS + i]
            lifetime += events * width_of(index)
            values[DENSITY + i] = hits / lifetime if lifetime > 0.0 else 0.0


def on_touch(state, cache, first, last, now):
    """Count the hits of what was resident."""
    for level in range(first, last):
        node = cache.path[level]
        block = cache.nodes[node]
        blocks = block.resident
        if block.run >= 0 and cache.runs[block.run].birth == now:
            blocks = cache.runs[block.run].start
        if blocks > 0:
            state.scalars[NEW_HITS + place(state, node, block.uses - 1, now)] += blocks
        state.nodes[node, LAST] = now


def on_remove(state, cache, node, blocks, now, expired):
    """Count evictions."""
    state.scalars[NEW_EVICTIONS + place(state, node, cache.nodes[node].uses, now)] += blocks


def setup(trace, capacity, seed):
    """Return the histograms, empty, and the last use of each node."""
    return new_state(trace, scalars=[0.0] * (DENSITY + CLASSES * BINS), nodes=1)


POLICY = Policy(
    name="lhd",
    summary="Evict the leaf with the least hit density, learnt from ages of hits and evictions.",
    source="Beckmann et al. 2018 (LHD)",
    rank=rank,
    setup=setup,
    on_request=on_request,
    on_touch=on_touch,
    on_remove=on_remove,
    rerank="request",
)
