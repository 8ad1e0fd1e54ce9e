"""SGLang's radix cache as it is: whole nodes go, and splitting renews a node.

Source: SGLang's RadixCache (version 0.5) with the strategies `lru`, `lfu` and
`slru`. A node of its tree holds what one request added, until a later request
ends or branches off inside it and splits it. A request

1. matches its chain: every node on the way gets the time of the match; a node
   that the chain leaves in the middle is split, and both halves are younger
   than before, the unmatched one by the time of the match;
2. locks the nodes it matched and evicts leaves of the tree, whole, until
   there is room for what is missing;
3. inserts what fits as one node; every node on the way gets the time of the
   insertion and one hit more, the new node its first.

The leaf with the smallest key goes: last access for `lru`, (hits, last access)
for `lfu`, (hits of 2 or more, last access) for `slru`. The clock ticks at every
reading, so no two leaves are alike. Cost: O(node visits) in all plus O(log
leaves) an eviction. This is a cache of its own: its nodes are not those of the
trace's tree, and more is evicted than is missing, so the engine's switches,
but for the hit cap, and a TTL do not apply. Adapted: a token is a block; a request
ends at once, and its answer is not stored. Older versions free as much
as is missing whatever was free already: `surplus`.
"""

import heapq
from functools import partial

import numpy as np
from numba import njit

from kvsim.cache.policy import Policy
from kvsim.cache.result import Result, counted
from kvsim.traces.trace import Trace

LRU, LFU, SLRU = range(3)
PROTECTED_HITS = 2
# Columns of a node of SGLang's tree.
FIRST, LAST, BLOCKS, CHILDREN, ACCESS, HITS, LOCKED = range(7)
CLOCK, USED, INSERTED, EVICTED, FREE, NODES = range(6)
CLASS = 1 << 40  # of keys, above any reading of the clock


def replay(strategy: int, trace: Trace, policy: Policy, capacity: int, surplus: bool) -> Result:
    """Replay a trace under one of the strategies."""
    if trace.chain_blocks.max(initial=0) > capacity:
        trace = trace.expand()  # where only the head of a chain may fit
    hits = np.zeros((2, trace.requests), dtype=np.int64)
    counts = np.zeros(6, dtype=np.int64)
    _replay(
        trace.terminal, *trace.tree, trace.block_size, capacity, strategy, surplus, counts, hits
    )
    flow = {"inserted_blocks": int(counts[INSERTED]), "evicted_blocks": int(counts[EVICTED])}
    return counted(trace, policy.name, capacity, hits[0], hits[1], **flow, expired_blocks=0)


@njit(cache=True)
def _new_node(nodes, counts, first, last, blocks, hits):
    node = counts[FREE]
    if node >= 0:
        counts[FREE] = nodes[node, FIRST]
    else:
        node = counts[NODES]
        counts[NODES] += 1
    nodes[node, FIRST] = first
    nodes[node, LAST] = last
    nodes[node, BLOCKS] = blocks
    nodes[node, CHILDREN] = 0
    nodes[node, ACCESS] = counts[CLOCK] + 1
    nodes[node, HITS] = hits
    nodes[node, LOCKED] = -1
    counts[CLOCK] += 2  # time of access, then of creation
    return node


@njit(cache=True)
def _key(nodes, node, strategy):
    rank = np.int64(0)
    if strategy == LFU:
        rank = nodes[node, HITS]
    elif strategy == SLRU:
        rank = np.int64(nodes[node, HITS] >= PROTECTED_HITS)
    return rank * CLASS + nodes[node, ACCESS]


@njit(cache=True)
def _replay(
    terminal,
    parent,
    length,
    depth,
    tokens_above,
    tail,
    block_size,
    capacity,
    strategy,
    surplus,
    counts,
    hits,
):
    nodes = np.empty((len(parent) + 1, 7), dtype=np.int64)
    owner = np.full(len(parent), -1, dtype=np.int64)  # node of SGLang's that holds a tree node
    below = np.full(len(parent), -1, dtype=np.int64)  # next tree node of the same owner
    path = np.empty(len(parent) + 1, dtype=np.int64)
    leaves = [(np.int64(0), np.int64(0))]  # heap of (key, node), with stale entries
    leaves.pop()
    counts[FREE] = -1
    for now in range(len(terminal)):
        levels = 0
        tree_node = np.int64(terminal[now])
        while tree_node >= 0:
            path[levels] = tree_node
            levels += 1
            tree_node = np.int64(parent[tree_node])
        if levels == 0:
            continue
        # 1. Match, root first.
        counts[CLOCK] += 1
        level = levels - 1
        node = np.int64(-1)
        while level >= 0 and owner[path[level]] >= 0:
            node = owner[path[level]]
            nodes[node, ACCESS] = counts[CLOCK]
            nodes[node, LOCKED] = now
            level -= 1
        matched = np.int64(0)
        if node >= 0:
            reached = path[level + 1]
            matched = np.int64(depth[reached]) + length[reached]
            hits[0, now] = matched
            hits[1, now] = tokens_above[reached] + (length[reached] - 1) * block_size
            hits[1, now] += tail[reached]
            if below[reached] >= 0:  # split: the upper half is a new node
                upper = _new_node(nodes, counts, nodes[node, FIRST], reached, 0, nodes[node, HITS])
                nodes[upper, LOCKED] = now
                nodes[node, LOCKED] = -1
                nodes[upper, CHILDREN] = 1
                tree_node = nodes[upper, FIRST]
                while tree_node != below[reached]:
                    owner[tree_node] = upper
                    nodes[upper, BLOCKS] += length[tree_node]
                    tree_node = below[tree_node]
                nodes[node, FIRST] = below[reached]
                nodes[node, BLOCKS] -= nodes[upper, BLOCKS]
                below[reached] = -1
                if nodes[node, CHILDREN] == 0:
                    heapq.heappush(leaves, (_key(nodes, node, strategy), node))
                node = upper
        # 2. Evict whole leaves.
        missing = np.int64(depth[path[0]]) + length[path[0]] - matched
        freed = np.int64(0)
        needed = missing - (capacity - counts[USED])
        if needed > 0:
            needed = missing if surplus else needed
            while freed < needed and len(leaves) > 0:
                key, victim = heapq.heappop(leaves)
                if (
                    nodes[victim, CHILDREN] > 0
                    or nodes[victim, LOCKED] == now
                    or nodes[victim, BLOCKS] == 0
                    or key != _key(nodes, victim, strategy)
                ):
                    continue
                freed += nodes[victim, BLOCKS]
                tree_node = nodes[victim, FIRST]
                above = np.int64(parent[tree_node])
                while tree_node >= 0:
                    owner[tree_node] = -1
                    following = below[tree_node]
                    below[tree_node] = -1
                    tree_node = following
                nodes[victim, BLOCKS] = 0
                nodes[victim, FIRST] = counts[FREE]
                counts[FREE] = victim
                if above >= 0:
                    above = owner[above]
                    nodes[above, CHILDREN] -= 1
                    if nodes[above, CHILDREN] == 0:
                        heapq.heappush(leaves, (_key(nodes, above, strategy), above))
            counts[USED] -= freed
            counts[EVICTED] += freed
        # 3. Insert what fits.
        counts[CLOCK] += 1
        for i in range(level + 1, levels):
            on_way = owner[path[i]]
            if i == level + 1 or on_way != owner[path[i - 1]]:
                nodes[on_way, HITS] += 1
                nodes[on_way, ACCESS] = counts[CLOCK]
        room = min(missing, capacity - counts[USED])
        added = np.int64(-1)
        while level >= 0 and length[path[level]] <= room:
            tree_node = path[level]
            if added < 0:
                added = _new_node(nodes, counts, tree_node, tree_node, 0, 1)
                if node >= 0:
                    nodes[node, CHILDREN] += 1
            else:
                below[path[level + 1]] = tree_node
            owner[tree_node] = added
            nodes[added, BLOCKS] += length[tree_node]
            nodes[added, LAST] = tree_node
            room -= length[tree_node]
            counts[USED] += length[tree_node]
            counts[INSERTED] += length[tree_node]
            level -= 1
        if added >= 0:
            node = added
        if node >= 0 and nodes[node, CHILDREN] == 0:
            heapq.heappush(leaves, (_key(nodes, node, strategy), node))


def _policy(name: str, strategy: int, summary: str) -> Policy:
    return Policy(
        name=name,
        summary=f"SGLang's radix cache: whole nodes go, {summary}.",
        source="SGLang (RadixCache)",
        replays=partial(replay, strategy),
        parameters={"surplus": False},
    )


BY_LRU = _policy("sglang-lru", LRU, "the least recently used first")
BY_LFU = _policy("sglang-lfu", LFU, "the one with the fewest hits first")
BY_SLRU = _policy("sglang-slru", SLRU, "those with fewer than two hits first")
