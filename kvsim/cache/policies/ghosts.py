"""Ghost queues: which absent blocks left the cache last.

A ghost queue remembers blocks in the order in which they left. A node's
absent blocks leave deepest first, so an entry is a stretch of one node, and
its deepest block is the oldest. An entry is forgotten from the old end of the
queue, or claimed when its node is asked for again. All in one int64 array:
a header, the shallowest entry of each node, and the entries.
"""

import numpy as np
from numba import njit

NODES, FREE, USED, OLDEST, NEWEST, LIVE, HEADER = range(7)
NODE, START, END, MARK, DEEPER, SHALLOWER, OLDER, NEWER, ENTRY = range(9)
CLAIMED = -1  # as OLDER
EVER = 2**62  # as the end of a stretch


def new_ghost(trace, most):
    """Return an empty queue for `most` blocks, and as many that are claimed."""
    nodes = len(trace.tree.parent)
    entries = min(2 * most + 1, trace.distinct_blocks) + 1
    ghost = np.zeros(HEADER + nodes + entries * ENTRY, np.int64)
    ghost[NODES] = nodes
    return ghost


@njit(cache=True)
def bury(ghost, node, start, end, mark):
    """Remember that blocks ``start:end`` of a node left, and `mark` with them."""
    ghost[LIVE] += end - start
    top = ghost[HEADER + node]
    if top and top == ghost[NEWEST] and ghost[top + START] == end and ghost[top + MARK] == mark:
        ghost[top + START] = start
        return
    entry = ghost[FREE]
    if entry:
        ghost[FREE] = ghost[entry + DEEPER]
    else:
        entry = HEADER + ghost[NODES] + ghost[USED] * ENTRY
        ghost[USED] += 1
    ghost[entry + NODE] = node
    ghost[entry + START] = start
    ghost[entry + END] = end
    ghost[entry + MARK] = mark
    ghost[entry + DEEPER] = top
    ghost[entry + SHALLOWER] = 0
    if top:
        ghost[top + SHALLOWER] = entry
    ghost[HEADER + node] = entry
    ghost[entry + OLDER] = ghost[NEWEST]
    ghost[entry + NEWER] = 0
    if ghost[NEWEST]:
        ghost[ghost[NEWEST] + NEWER] = entry
    else:
        ghost[OLDEST] = entry
    ghost[NEWEST] = entry


@njit(cache=True)
def leave_order(ghost, entry):
    """Take an entry out of the order of leaving."""
    older, newer = ghost[entry + OLDER], ghost[entry + NEWER]
    if older:
        ghost[older + NEWER] = newer
    else:
        ghost[OLDEST] = newer
    if newer:
        ghost[newer + OLDER] = older
    else:
        ghost[NEWEST] = older
    ghost[LIVE] -= ghost[entry + END] - ghost[entry + START]
    ghost[entry + OLDER] = CLAIMED


@njit(cache=True)
def erase(ghost, entry):
    """Take an entry out of its node, and free it."""
    deeper, shallower = ghost[entry + DEEPER], ghost[entry + SHALLOWER]
    if shallower:
        ghost[shallower + DEEPER] = deeper
    else:
        ghost[HEADER + ghost[entry + NODE]] = deeper
    if deeper:
        ghost[deeper + SHALLOWER] = shallower
    ghost[entry + DEEPER] = ghost[FREE]
    ghost[FREE] = entry


@njit(cache=True)
def trim(ghost, most):
    """Forget what left longest ago, beyond `most` blocks."""
    while ghost[LIVE] > most:
        entry = ghost[OLDEST]
        cut = min(ghost[LIVE] - most, ghost[entry + END] - ghost[entry + START])
        ghost[entry + END] -= cut
        ghost[LIVE] -= cut
        if ghost[entry + END] == ghost[entry + START]:
            leave_order(ghost, entry)
            erase(ghost, entry)


@njit(cache=True)
def drop(ghost, node):
    """Erase a node's entries once it is inserted."""
    entry = ghost[HEADER + node]
    while entry:
        deeper = ghost[entry + DEEPER]
        if ghost[entry + OLDER] != CLAIMED:
            leave_order(ghost, entry)
        erase(ghost, entry)
        entry = deeper


@njit(cache=True)
def claim(ghost, node):
    """Set a node's entries aside for its insertion; return the blocks."""
    blocks = 0
    entry = ghost[HEADER + node]
    while entry:
        blocks += ghost[entry + END] - ghost[entry + START]
        leave_order(ghost, entry)
        entry = ghost[entry + DEEPER]
    return blocks


@njit(cache=True)
def claim_missing(ghost, cache, now):
    """Claim the absent blocks of a request's chain; return how many the queue remembered."""
    node = cache.requests[now - 1].terminal if now > 0 else -1
    while node >= 0:  # what the request before claimed and had no room for
        if ghost[HEADER + node] and ghost[ghost[HEADER + node] + OLDER] == CLAIMED:
            drop(ghost, node)
        node = cache.nodes[node].parent
    blocks = 0
    node = cache.requests[now].terminal
    while node >= 0:
        if cache.nodes[node].resident < cache.nodes[node].length:
            blocks += claim(ghost, node)
        node = cache.nodes[node].parent
    return blocks


@njit(cache=True)
def stretch(ghost, node, block):
    """Say up to which block what holds for `block` holds: positive if remembered, else negative."""
    entry = ghost[HEADER + node]
    while entry:
        if block < ghost[entry + START]:
            return -ghost[entry + START]
        if block < ghost[entry + END]:
            return ghost[entry + END]
        entry = ghost[entry + DEEPER]
    return -EVER


@njit(cache=True)
def mark_of(ghost, node, block):
    """Return the mark that a block was buried with, -1 if it is not remembered."""
    entry = ghost[HEADER + node]
    while entry and block >= ghost[entry + END]:
        entry = ghost[entry + DEEPER]
    return ghost[entry + MARK] if entry and block >= ghost[entry + START] else -1
