"""The compiled replay loop: residency, capacity, pins and counts live here.

In leaf mode with pins a node of the radix tree stands for all its blocks and its residency is
one number; the other modes run the same loop on the tree of one block a node.
"""

from collections.abc import Callable
from functools import lru_cache

import numpy as np
from numba import njit, types

from kvsim.cache.compiling import (
    CACHE_TYPE,
    HEAP_TYPE,
    INDEX,
    INNER,
    RULES_TYPE,
    STATE_TYPE,
    call_expire,
    call_find,
    call_on_remove,
    call_on_request,
    call_on_touch,
    call_rank,
    call_rank_all,
    call_take,
    call_turn,
)
from kvsim.cache.heap import drop_stale, in_turn, is_leaf, pop, push
from kvsim.cache.policy import (
    ENTRIES,
    EVICTED,
    EXPIRED,
    FREE_RUN,
    INSERTED,
    QUEUE,
    RUNS,
    STAMP,
    STEADY,
    USED,
)


@lru_cache(maxsize=1)
def loop() -> Callable[..., None]:
    """Return the compiled loop, which takes what `_replay` does."""
    signature = types.void(CACHE_TYPE, STATE_TYPE, *[INDEX] * 9, RULES_TYPE, HEAP_TYPE)
    options = {**INNER, "no_cpython_wrapper": False}
    return njit(signature, cache=True, nogil=True, **options)(_replay)  # type: ignore[no-any-return]


def _replay(
    cache,
    state,
    rank,
    on_request,
    on_touch,
    on_remove,
    take,
    turn,
    rank_all,
    find,
    expire,
    rules,
    heap,
):
    # One function, with its parts inlined: a call that passes arrays costs more than its work.
    # Conditions are joined by & and |: every `and` is a branch more, which takes long to compile.
    nodes, runs, requests, counts = cache.nodes, cache.runs, cache.requests, cache.counts
    path, capacity, block_size = cache.path, cache.capacity, cache.block_size
    oldest = 0  # first request whose blocks may not have expired yet
    for now in range(len(requests)):
        request = requests[now]
        # 1. Expire.
        if expire:
            oldest = call_expire(expire, state, cache, heap, rank, on_remove, rules, oldest, now)
        # 2. Look up; 3. pin.
        levels = 0
        missing = 0
        node = np.int64(request.terminal)
        reached = node  # deepest node that the resident prefix reaches into
        while node >= 0:
            block = nodes[node]
            absent = block.length - block.resident
            path[levels] = node
            levels += 1
            block.pinned = now
            missing += absent
            if absent > 0:
                reached = node
            elif rules.set_hits & rules.pinning:
                request.hit_blocks += 1
                request.hit_tokens += block.tail_tokens
            node = np.int64(block.parent)
        leading = np.int64(0)  # blocks of the resident prefix
        if reached >= 0:
            block = nodes[reached]
            resident = np.int64(block.resident)
            leading = block.depth + resident
            if not rules.set_hits:
                request.hit_blocks = leading
                request.hit_tokens = block.tokens_above + resident * block_size
                if resident == block.length:
                    request.hit_tokens += block.tail_tokens - block_size
        if on_request:
            call_on_request(on_request, state, cache, now, leading)
        # With pins the whole path is one group. Without, each level is one, visited twice:
        # going up what is resident is touched, coming down what is absent is inserted.
        for visit in range(1 if rules.pinning else 2 * levels):
            first = 0
            last = levels
            if not rules.pinning:
                inserting = visit >= levels
                first = 2 * levels - 1 - visit if inserting else visit
                last = first + 1
                block = nodes[path[first]]
                missing = 1 - block.resident
                if inserting & (missing == 0) & rules.set_hits:
                    request.hit_blocks += 1
                    request.hit_tokens += block.tail_tokens
                skipped = (not inserting) & rules.deepest_only & (first > 0)
                if (inserting != (missing == 1)) | skipped:
                    continue
            # 4. Make room.
            fresh = True
            while missing > capacity - counts[USED]:
                if find:
                    victim = call_find(
                        find, state, cache, heap, rank, turn, rank_all, rules, fresh, now
                    )
                    fresh = False
                else:
                    victim = _next_leaf(nodes, counts, heap, 0, rules, now)
                if victim < 0:
                    break
                block = nodes[victim]
                blocks = np.int64(1)
                if rules.uniform:
                    run = block.resident - runs[block.run].start
                    blocks = min(missing - capacity + counts[USED], run)
                if take:
                    blocks = call_take(take, state, cache, victim, blocks, now)
                if blocks > 0:
                    _remove(nodes, runs, counts, block, blocks, EVICTED)
                    if on_remove:
                        call_on_remove(on_remove, state, cache, victim, blocks, now, False)
                if block.resident == 0:
                    victim = np.int64(block.parent)
                if victim >= 0:
                    _offer(cache, nodes, counts, heap, state, rank, rules, victim, now)
            # 5. Insert, root first, as many as fit.
            room = min(missing, capacity - counts[USED])
            level = last - 1
            while (room > 0) & (level >= first):
                node = path[level]
                block = nodes[node]
                blocks = min(room, block.length - block.resident)
                if blocks > 0:
                    _insert(nodes, runs, counts, block, blocks, now)
                    room -= blocks
                level -= 1
            # 6. Touch.
            start = first
            for level in range(first, last + 1):  # one more, which ends the last stretch
                skipped = level == last
                if not skipped:
                    block = nodes[path[level]]
                    skipped = rules.deepest_only & (level > 0) & (not _new(runs, block, now))
                if not skipped:
                    block.last = now
                    block.uses += 1
                else:
                    if (on_touch != 0) & (start < level):
                        call_on_touch(on_touch, state, cache, start, level, now)
                    start = level + 1
            # 7. Unpin.
            for level in range(first, last):
                node = path[level]
                if nodes[node].resident > 0:
                    _offer(cache, nodes, counts, heap, state, rank, rules, node, now)
                    if not rules.flat:
                        break  # the nodes above have a resident child
        for queue in range(rules.queues):
            if counts[ENTRIES + queue] > 2 * len(nodes) + 16:
                drop_stale(nodes, rules.flat, heap, counts, queue)


def find_victim(state, cache, heap, rank, turn, rank_all, rules, fresh, now):
    """Return the victim, -1 for none, where it is not just the next leaf of one queue."""
    nodes, counts = cache.nodes, cache.counts
    if rules.rerank == 2 or (fresh and rules.rerank > counts[STEADY]):
        call_rank_all(rank_all, state, cache, heap, now)
    order = call_turn(turn, state, cache, now) if rules.turns else 0
    if rules.candidates > 0:
        return _best_of_oldest(state, cache, heap, rank, order, rules, now)
    victim = np.int64(-1)
    for position in range(rules.queues):
        if victim < 0:
            queue = order >> 2 * position & 3
            victim = _next_leaf(nodes, counts, heap, queue, rules, now)
    return victim


@njit(inline="always")
def _best_of_oldest(state, cache, heap, rank, order, rules, now):
    """Return the best of the k least recently used leaves, -1 if there is none."""
    nodes, counts = cache.nodes, cache.counts
    node = _next_leaf(nodes, counts, heap, 0, rules, now)
    best = node
    best_key = np.inf
    # The leaves drawn stand where the heap ended, the first one highest.
    end = counts[ENTRIES]
    drawn = 0
    while node >= 0:
        key = in_turn(call_rank(rank, state, cache, node, now), order, rules)
        if key < best_key:  # the older one wins a tie
            best, best_key = node, key
        heap[0, end - drawn].node = node
        drawn += 1
        node = np.int64(-1)
        if drawn < rules.candidates:
            node = _next_leaf(nodes, counts, heap, 0, rules, now)
    for slot in range(end - drawn + 1, end + 1):
        node = np.int64(heap[0, slot].node)
        if node != best:
            counts[STAMP] += 1
            nodes[node].stamp = counts[STAMP]
            push(heap, counts, 0, 0.0, _recency(nodes[node], rules), counts[STAMP], node)
    return best


def take_expired(state, cache, heap, rank, on_remove, rules, oldest, now):
    """Take out what requests from `oldest` on left that has expired; return the next `oldest`."""
    nodes, runs, requests, counts = cache.nodes, cache.runs, cache.requests, cache.counts
    while requests[now].arrival - requests[oldest].arrival > rules.ttl:
        node = np.int64(requests[oldest].terminal)
        while node >= 0:
            block = nodes[node]
            above = np.int64(block.parent)
            if block.resident > 0 and block.last == oldest:
                blocks = np.int64(block.resident)
                _remove(nodes, runs, counts, block, blocks, EXPIRED)
                if on_remove:
                    call_on_remove(on_remove, state, cache, node, blocks, now, True)
                if above >= 0:
                    _offer(cache, nodes, counts, heap, state, rank, rules, above, now)
            node = above
        oldest += 1
    return oldest


@njit(inline="always")
def _remove(nodes, runs, counts, block, blocks, cause):
    """Take blocks off a node's end, and the runs that they made up."""
    block.resident -= blocks
    counts[USED] -= blocks
    counts[cause] += blocks
    run = np.int64(block.run)
    while run >= 0 and runs[run].start >= block.resident:
        below = np.int64(runs[run].below)
        runs[run].below = counts[FREE_RUN]
        counts[FREE_RUN] = run
        run = below
    block.run = run
    if block.resident == 0 and block.parent >= 0:
        nodes[block.parent].children -= 1


@njit(inline="always")
def _insert(nodes, runs, counts, block, blocks, now):
    """Append absent blocks to a node's resident ones as a new run."""
    free = counts[FREE_RUN]
    if free < 0:
        free = counts[RUNS]
        counts[RUNS] += 1
    else:
        counts[FREE_RUN] = runs[free].below
    run = runs[free]
    run.start = block.resident
    run.birth = now
    run.uses = block.uses
    run.below = block.run
    block.run = free
    if block.resident == 0 and block.parent >= 0:
        nodes[block.parent].children += 1
    block.resident += blocks
    counts[USED] += blocks
    counts[INSERTED] += blocks


@njit(inline="always")
def _new(runs, block, now):
    return (block.run >= 0) & (runs[block.run].birth == now)


@njit(inline="always")
def _next_leaf(nodes, counts, heap, queue, rules, now):
    """Take entries off a queue up to the first evictable leaf; return it, -1 for none."""
    leaf = np.int64(-1)
    while (counts[ENTRIES + queue] > 0) & (leaf < 0):
        node, stamp = pop(heap, counts, queue)
        block = nodes[node]
        pinned = rules.pinning & (block.pinned == now)
        if (block.stamp == stamp) & (not pinned) & is_leaf(block, rules.flat):
            leaf = node
    return leaf


@njit(inline="always")
def _recency(block, rules):
    """Return when a node's deepest resident block was used: request, then depth."""
    depth = np.int64(block.depth) + block.resident - 1
    return (np.int64(block.last) << 31) | (depth ^ rules.turned)


@njit(inline="always")
def _offer(cache, nodes, counts, heap, state, rank, rules, node, now):
    """Enter a node into the heap if it is a leaf; its older entry becomes stale."""
    block = nodes[node]
    if is_leaf(block, rules.flat):
        stamp = counts[STAMP] + 1
        counts[STAMP] = stamp
        block.stamp = stamp
        key = 0.0
        if rules.ranks:
            key = call_rank(rank, state, cache, node, now)
        queue = np.int64(key / QUEUE) if rules.queues > 1 else 0
        push(heap, counts, queue, key, _recency(block, rules), stamp, node)
