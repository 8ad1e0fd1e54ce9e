"""RLT: drop the last tokens of a random leaf that no request of this phase used.

Source: 2601.18999 (randomised leaf tokens; O(log n)-competitive, by our reading of a
secondary source). A request marks its blocks. While room is wanted, a leaf drawn among the
unmarked loses its last tokens. When marks fill the cache a new phase starts without marks.

Parameters: `step` in tokens. Cost: O(leaves) a request that evicts, O(log leaves) a step
evicted. Adapted: blocks inserted together that stand in one step of their chain draw a
number once, then, and the leaf with the smallest goes, where the paper draws a leaf anew
for each token; should only marked leaves be left, they are drawn from.
"""

import numpy as np

from kvsim.cache.policies.random import mix
from kvsim.cache.policy import Policy, new_state

SEED, PHASE, MARKED = range(3)


def rank(state, cache, node, now):
    """Rank by the mark, then by the number drawn."""
    block = cache.nodes[node]
    z = mix(np.uint64(state.scalars[SEED]), np.uint64(cache.runs[block.run].birth + 1))
    z = mix(z, np.uint64((block.depth + block.resident - 1) // state.table[0] + 1))
    marked = 1.0 if block.last >= state.scalars[PHASE] else 0.0
    return marked + float(z >> np.uint64(12)) * 2.0**-52


def on_request(state, cache, now, hit_blocks):
    """Start a phase if marks fill the cache and more is to come."""
    node = cache.requests[now].terminal
    if node >= 0:
        chain = cache.nodes[node].depth + cache.nodes[node].length
        if state.scalars[MARKED] >= cache.capacity and hit_blocks < chain:
            state.scalars[PHASE] = now
            state.scalars[MARKED] = 0.0


def on_touch(state, cache, first, last, now):
    """Count the blocks marked."""
    for level in range(first, last):
        node = cache.path[level]
        block = cache.nodes[node]
        if state.nodes[node, 0] < state.scalars[PHASE]:
            state.scalars[MARKED] += block.resident
        elif block.run >= 0 and cache.runs[block.run].birth == now:
            state.scalars[MARKED] += block.resident - cache.runs[block.run].start
        state.nodes[node, 0] = now


def on_remove(state, cache, node, blocks, now, expired):
    """Count the marked blocks gone."""
    if cache.nodes[node].last >= state.scalars[PHASE]:
        state.scalars[MARKED] -= blocks


def take(state, cache, node, blocks, now):
    """Let go what stands in one step."""
    block = cache.nodes[node]
    return min(blocks, 1 + (block.depth + block.resident - 1) % state.table[0])


def setup(trace, capacity, seed, step):
    """Return the phase, the last use of each node, and the step in blocks."""
    table = np.array([max(int(step) // trace.block_size, 1)])
    state = new_state(trace, scalars=[seed, 0.0, 0.0], nodes=1, table=table)
    state.nodes[:] = -1.0
    return state


POLICY = Policy(
    name="rlt",
    summary="Evict the last tokens of a random leaf not used in this marking phase.",
    source="RLT (ICLR'26, 2601.18999)",
    rank=rank,
    setup=setup,
    on_request=on_request,
    on_touch=on_touch,
    on_remove=on_remove,
    take=take,
    rerank="request",
    parameters={"step": 1024},
)
