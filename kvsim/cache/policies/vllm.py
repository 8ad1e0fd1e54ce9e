"""vLLM's free queue: evict the leaf that was released longest ago.

Source: vLLM's automatic prefix caching. A block joins the tail of the free
queue when the last request that uses it ends, the last block of the request
first; the head of the queue goes first. Cost: O(node visits) in all plus
O(log leaves) a request. A request releases at arrival + service where the
service is known, else at its arrival. Full blocks only, and the last token of
a prompt is always recomputed: the hit cap applies whatever the switches say.
Adapted: a chain is pinned during its request's own step only, so a running
request's blocks may be evicted, the latest to end last; blocks of the answer
take no room; the partial block at a prompt's end, which vLLM gives a
block of its own each time, is kept like the others and never hit.
"""

import numpy as np

from kvsim.cache.policy import Policy, new_state

RELEASE = 0


def rank(state, cache, node, now):
    """Rank by the time of release."""
    return state.nodes[node, RELEASE]


def on_touch(state, cache, first, last, now):
    """Put off the release until this request ends, if no other ends later."""
    request = cache.requests[now]
    release = request.arrival
    if not np.isnan(request.service):
        release += request.service
    for level in range(first, last):
        node = cache.path[level]
        state.nodes[node, RELEASE] = max(state.nodes[node, RELEASE], release)


def setup(trace, capacity, seed):
    """Return the release of each node."""
    return new_state(trace, nodes=1)


POLICY = Policy(
    name="vllm",
    summary="Evict the leaf released longest ago; full blocks hit, the last token never.",
    source="vLLM (free block queue)",
    rank=rank,
    setup=setup,
    on_touch=on_touch,
    hit_cap="engine",
    needs=("service, where known",),
)
