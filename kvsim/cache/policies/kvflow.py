"""KVFlow: evict the leaf that the most steps of its workflow lie before.

Source: KVFlow (NeurIPS'25, 2507.07400), our reading of a secondary source. A leaf's steps to
execution are the requests that its session sends until one uses it, that one included; the
farthest goes, one that is never used again before all, LRU among equals.

An oracle: the workflow is taken from the trace's future. Cost: O(node visits) in all plus
O(leaves) a request that evicts. Adapted: a session is a workflow of one line, so there is
no join or branch; a shared leaf counts in the session that uses it next. Suffixes go first by
the leaf rule. Without sessions, conversations are inferred.
"""

import numpy as np
from numba import njit

from kvsim.cache.policies.hazard import conversations
from kvsim.cache.policy import Policy, new_state
from kvsim.traces.trace import accesses_by_node

CURSOR = 0


@njit(cache=True)
def next_use(state, node, now):
    """Return the request that uses the node next, -1 if none does."""
    table = state.table
    i = int(state.nodes[node, CURSOR])
    while i < table[node + 1] and table[i] <= now:
        i += 1
    state.nodes[node, CURSOR] = i
    return table[i] if i < table[node + 1] else -1


def rank(state, cache, node, now):
    """Rank by the steps to execution, the most first."""
    following = next_use(state, node, now)
    if following < 0:
        return -np.inf
    offset = len(state.table) - 2 * len(cache.requests)
    session = state.table[offset + following]
    turn = state.table[offset + len(cache.requests) + following]
    return state.sessions[session, 0] - turn


def on_request(state, cache, now, hit_blocks):
    """Count the session's requests."""
    offset = len(state.table) - 2 * len(cache.requests)
    state.sessions[state.table[offset + now], 0] += 1


def turns(sessions):
    """Return the how-manieth request of its session each one is, from 1 (int64[n])."""
    order = np.argsort(sessions, kind="stable")
    ranked = sessions[order]
    result = np.empty_like(sessions)
    result[order] = np.arange(len(sessions)) - np.searchsorted(ranked, ranked) + 1
    return result


def setup(trace, capacity, seed):
    """Return uses by node, then session and turn by request, in one table."""
    start, requests = accesses_by_node(trace)
    start += len(start)  # the requests follow the index in one table
    sessions = conversations(trace)
    table = np.concatenate([start, requests, sessions, turns(sessions)])
    state = new_state(trace, nodes=1, table=table)
    state.nodes[:, CURSOR] = start[:-1]
    return state._replace(sessions=np.zeros((1 + sessions.max(initial=0), 1)))


POLICY = Policy(
    name="kvflow",
    summary="Evict the leaf that the most requests of its session lie before.",
    source="KVFlow (NeurIPS'25, 2507.07400), our reading of a secondary source",
    rank=rank,
    setup=setup,
    on_request=on_request,
    rerank="request",
    needs=("future (the workflow)", "sessions, else inferred"),
)
