"""PGDSF: GDSF that weighs a block's uses by what computing it cost when it was computed.

Source: RAGCache (2404.12457), our reading of a secondary source: priority = clock +
frequency · cost / size, leaves only; an eviction raises the clock to the victim's
priority. Cost / size is the prefill time of a missed token, which grows
with the tokens cached before it: a request that finds α tokens and computes β more pays
1 + (α + β / 2) / `knee` a token, `knee` being the prefix length at which attention
costs as much as everything else.

Parameters: `knee` in tokens. Cost: O(log leaves) a request. Adapted: a block's cost is
that of its latest computation where the paper averages, and uses die with the block.
"""

from numba import njit

from kvsim.cache.policy import Policy, new_state
from kvsim.traces.trace import TraceError

CLOCK, KNEE, COST = range(3)


@njit(cache=True)
def priority(state, cache, node):
    """Return the priority of the node's deepest resident block."""
    block = cache.nodes[node]
    uses = block.uses - cache.runs[block.run].uses
    return state.nodes[node, CLOCK] + uses * state.runs[block.run, 0]


def rank(state, cache, node, now):
    """Rank by the priority."""
    return priority(state, cache, node)


def on_request(state, cache, now, hit_blocks):
    """Set the cost of a token that this request computes."""
    node = cache.requests[now].terminal
    if node >= 0:
        end = cache.nodes[node]
        tokens = end.tokens_above + (end.length - 1) * cache.block_size + end.tail_tokens
        found = min(hit_blocks * cache.block_size, tokens)
        state.scalars[COST] = 1.0 + (found + tokens) / 2.0 / state.scalars[KNEE]


def on_touch(state, cache, first, last, now):
    """Note the clock, and the cost of what is new."""
    for level in range(first, last):
        node = cache.path[level]
        state.nodes[node, CLOCK] = state.scalars[CLOCK]
        run = cache.nodes[node].run
        if run >= 0 and cache.runs[run].birth == now:
            state.runs[run, 0] = state.scalars[COST]


def take(state, cache, node, blocks, now):
    """Raise the clock to the victim's priority."""
    state.scalars[CLOCK] = max(state.scalars[CLOCK], priority(state, cache, node))
    return blocks


def setup(trace, capacity, seed, knee):
    """Return the clock, now and at each node's last use, and the cost of each run."""
    if not knee > 0:
        raise TraceError(f"knee is {knee}; it must be above 0 tokens")
    return new_state(trace, scalars=[0.0, knee, 1.0], nodes=1, runs=1, capacity=capacity)


POLICY = Policy(
    name="pgdsf",
    summary="Evict the leaf with the smallest uses × cost of computing it, on top of a clock.",
    source="RAGCache (2404.12457), our reading of a secondary source",
    rank=rank,
    setup=setup,
    on_request=on_request,
    on_touch=on_touch,
    take=take,
    parameters={"knee": 50_000.0},
)
