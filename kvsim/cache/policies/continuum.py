"""Continuum: keep a session's blocks pinned for as long as a tool call is worth waiting for.

Source: Continuum (2511.02230), our reading of a secondary source. After a request the
session is pinned for τ* = argmax F(τ) · (T · η + reload) − τ seconds, F(τ) being the share
of gaps up to τ seen so far and reload the prompt's prefill time. What is not pinned goes
by LRU; when all is pinned the session that arrived last is unpinned first.

Parameters: `wait` (T · η, the queueing that a lost turn costs) in seconds; `rate` of prefill
in tokens a second. τ is searched over the ends of `liveness`' 64 bins of age. Cost: O(leaves)
a request that evicts. Adapted: traces lack the tool's name, so F is of all gaps; every request
counts as a tool call, the last one of a session too, which the engine would know; leaves only,
so a shared block is pinned by its latest user. Without sessions, conversations are inferred.
"""

import numpy as np

from kvsim.cache.policies.hazard import conversations
from kvsim.cache.policies.liveness import BINS, WIDTHS, age_bin
from kvsim.cache.policy import Policy, new_state
from kvsim.traces.trace import TraceError

WAIT, RATE, PIN, GAPS = range(4)  # then the histogram of gaps
START, LATEST, KNOWN = range(3)
SESSION, UNTIL = range(2)


def rank(state, cache, node, now):
    """Rank what is not pinned first, then the latest session."""
    row = state.nodes[node]
    if cache.requests[now].arrival >= row[UNTIL]:
        return -np.inf
    return -state.sessions[int(row[SESSION]), START]


def on_request(state, cache, now, hit_blocks):
    """Learn the session's gap and decide how long to pin."""
    scalars = state.scalars
    request = cache.requests[now]
    session = state.sessions[state.table[now]]
    if session[KNOWN] > 0:
        scalars[GAPS] += 1
        scalars[GAPS + 1 + age_bin(request.arrival - session[LATEST])] += 1
    else:
        session[START], session[KNOWN] = request.arrival, 1
    session[LATEST] = request.arrival
    worth = scalars[WAIT] + request.input_tokens / scalars[RATE]
    below, end, best = 0.0, 0.0, 0.0
    scalars[PIN] = 0.0
    for i in range(BINS):
        below += scalars[GAPS + 1 + i]
        end += WIDTHS[i]
        gain = below / max(scalars[GAPS], 1.0) * worth - end
        if gain > best:
            best = gain
            scalars[PIN] = end


def on_touch(state, cache, first, last, now):
    """Pin the nodes."""
    for level in range(first, last):
        row = state.nodes[cache.path[level]]
        row[SESSION] = state.table[now]
        row[UNTIL] = cache.requests[now].arrival + state.scalars[PIN]


def setup(trace, capacity, seed, wait, rate):
    """Return the histogram, pins, and which session sends each request."""
    if not rate > 0:
        raise TraceError(f"rate is {rate}; it must be above 0 tokens a second")
    table = conversations(trace)
    state = new_state(trace, scalars=[wait, rate, *[0.0] * (2 + BINS)], nodes=2, table=table)
    return state._replace(sessions=np.zeros((1 + table.max(initial=0), 3)))


POLICY = Policy(
    name="continuum",
    summary="LRU over what is not pinned; a session is pinned while its return is worth waiting.",
    source="Continuum (2511.02230), our reading of a secondary source",
    rank=rank,
    setup=setup,
    on_request=on_request,
    on_touch=on_touch,
    rerank="request",
    needs=("sessions, else inferred", "tool names (all gaps stand in)"),
    parameters={"wait": 10.0, "rate": 5000.0},
)
