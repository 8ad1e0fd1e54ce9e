"""The heaps of candidates for eviction: one a queue, the smallest (key, recency) on top."""

import numpy as np
from numba import njit

from kvsim.cache.compiling import part
from kvsim.cache.policy import ENTRIES, QUEUE, QUEUES


@njit(inline="always")
def is_leaf(block, flat):
    """Return whether a node has a block that may go."""
    return (block.resident > 0) & (flat | (block.children == 0))


@part
def push(heap, counts, queue, key, recency, stamp, node):
    """Add an entry; the smallest (key, recency) of a queue is on top."""
    entries = heap[queue]
    i = counts[ENTRIES + queue]
    counts[ENTRIES + queue] += 1
    while i > 0:
        up = (i - 1) >> 1
        above = entries[up]
        if (key > above.key) | ((key == above.key) & (recency >= above.recency)):
            break
        entries[i] = above
        i = up
    _fill(entries[i], key, recency, stamp, node)


@part
def pop(heap, counts, queue):
    """Take the top entry of a queue off; return its (node, stamp)."""
    entries = heap[queue]
    node, stamp = np.int64(entries[0].node), entries[0].stamp
    counts[ENTRIES + queue] -= 1
    last = counts[ENTRIES + queue]
    _sift_down(entries, np.int64(0), last, last)
    return node, stamp


@part
def drop_stale(nodes, flat, heap, counts, queue):
    """Take the entries out of a queue that are not a leaf's newest."""
    entries, size = heap[queue], counts[ENTRIES + queue]
    counts[ENTRIES + queue] = 0
    for i in range(size):
        entry = entries[i]
        block = nodes[entry.node]
        if (block.stamp == entry.stamp) & is_leaf(block, flat):
            push(heap, counts, queue, entry.key, entry.recency, entry.stamp, np.int64(entry.node))


@part
def heapify(heap, size):
    """Put the first `size` entries into heap order."""
    for i in range(size // 2 - 1, -1, -1):
        _sift_down(heap, i, i, size)


@part
def _sift_down(heap, i, moving, size):
    """Place the entry at `moving` at `i` or below, in a heap of `size` entries."""
    entry = heap[moving]
    key, recency, stamp, node = entry.key, entry.recency, entry.stamp, entry.node
    while True:
        child = 2 * i + 1
        if child >= size:
            break
        least = heap[child]
        if child + 1 < size:
            other = heap[child + 1]
            if (other.key < least.key) | (
                (other.key == least.key) & (other.recency < least.recency)
            ):
                child, least = child + 1, other
        if (least.key > key) | ((least.key == key) & (least.recency >= recency)):
            break
        heap[i] = least
        i = child
    _fill(heap[i], key, recency, stamp, node)


@njit(inline="always")
def _fill(entry, key, recency, stamp, node):
    entry.key = key
    entry.recency = recency
    entry.stamp = stamp
    entry.node = node


@part
def in_turn(key, order, rules):
    """Return a rank that compares as queues take turns."""
    if not rules.turns:
        return key
    queue = np.int64(key / QUEUE)
    position = 0
    while position < QUEUES and order >> 2 * position & 3 != queue:
        position += 1
    return key + (position - queue) * QUEUE
