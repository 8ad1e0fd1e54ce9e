"""LPC: evict the leaf least likely to be continued, given that it has been idle.

Source: LPC (NeurIPS'25), our reading of a secondary source: evict min p·d / (p·d + 1 − p),
d = exp(−idle / mean gap), p being the predicted probability of a continuation.

The paper predicts p from the prompt's text, which traces lack. Here an oracle predicts: p is
`accuracy` for a block that is used again and 1 − `accuracy` for one that is not, an upper bound
for a predictor that is right so often.

Parameters: `accuracy` a ratio; `prior` in seconds, the gap that the mean starts from. Cost:
O(node visits) in all plus O(leaves) a request that evicts. Adapted: the mean gap is that of all
sessions so far; without sessions, conversations are inferred.
"""

import numpy as np

from kvsim.cache.policies.hazard import conversations
from kvsim.cache.policies.kvflow import CURSOR, next_use
from kvsim.cache.policy import Policy, new_state
from kvsim.traces.trace import TraceError, accesses_by_node

ACCURACY, GAPS, SUM = range(3)
KNOWN, LATEST = range(2)


def rank(state, cache, node, now):
    """Rank by the probability of a continuation."""
    p = state.scalars[ACCURACY]
    if next_use(state, node, now) < 0:
        p = 1.0 - p
    idle = cache.requests[now].arrival - cache.requests[cache.nodes[node].last].arrival
    alive = p * np.exp(-idle * state.scalars[GAPS] / state.scalars[SUM])
    return alive / (alive + 1.0 - p)


def on_request(state, cache, now, hit_blocks):
    """Learn the session's gap."""
    session = state.sessions[state.table[len(state.table) - len(cache.requests) + now]]
    time = cache.requests[now].arrival
    if session[KNOWN] > 0:
        state.scalars[GAPS] += 1
        state.scalars[SUM] += time - session[LATEST]
    session[KNOWN], session[LATEST] = 1, time


def setup(trace, capacity, seed, accuracy, prior):
    """Return uses by node, then the session of each request, in one table."""
    if not 0 < accuracy < 1:
        raise TraceError(f"accuracy is {accuracy}; it must lie between 0 and 1")
    if not prior > 0:
        raise TraceError(f"prior is {prior}; it must be above 0 s")
    start, requests = accesses_by_node(trace)
    start += len(start)  # the requests follow the index in one table
    sessions = conversations(trace)
    table = np.concatenate([start, requests, sessions])
    state = new_state(trace, scalars=[accuracy, 1.0, prior], nodes=1, table=table)
    state.nodes[:, CURSOR] = start[:-1]
    return state._replace(sessions=np.zeros((1 + sessions.max(initial=0), 2)))


POLICY = Policy(
    name="lpc",
    summary="Evict the leaf least likely to be continued after its idle time; an oracle predicts.",
    source="LPC (NeurIPS'25), our reading of a secondary source",
    rank=rank,
    setup=setup,
    on_request=on_request,
    rerank="request",
    needs=("future (a predictor's)", "sessions, else inferred"),
    parameters={"accuracy": 0.9, "prior": 60.0},
)
