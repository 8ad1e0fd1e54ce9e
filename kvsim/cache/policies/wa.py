"""WA: evict the leaf least likely to be reused within a window, by classes of requests.

Source: "KVCache in the Wild" (ATC'25, 2506.02634); the exact formula is from memory: our
reading of a secondary source. Requests of a class share an exponential reuse time of mean μ.
A block of age a is reused in the next `window` seconds with P = exp(−a / μ) −
exp(−(a + window) / μ); the least likely goes, so within a class the oldest.

Parameters: `window` in seconds; `prior` in seconds, the mean of one gap a class starts
with. Cost: O(leaves) a request that evicts. Adapted: traces lack the request type, so a
class is (sub-agent or not, turn 1, 2, 3, later); where there are no sessions, conversations are
inferred. Leaves only, where the paper picks among the heads of one queue a class.
"""

import numpy as np

from kvsim.cache.policies.hazard import conversations
from kvsim.cache.policy import Policy, new_state
from kvsim.traces.trace import TraceError

TURNS = 4
WINDOW = 0
COUNT, SUM = 0, 1  # columns of a class, whose rows come first; then rows of sessions
TURN, LATEST, CLASS = range(3)


def rank(state, cache, node, now):
    """Rank by the probability of reuse within the window."""
    row = state.sessions[int(state.nodes[node, 0])]
    mean = row[SUM] / row[COUNT]
    age = cache.requests[now].arrival - cache.requests[cache.nodes[node].last].arrival
    return np.exp(-age / mean) - np.exp(-(age + state.scalars[WINDOW]) / mean)


def on_request(state, cache, now, hit_blocks):
    """Learn from the session's gap and class the request."""
    request = cache.requests[now]
    session = state.sessions[2 * TURNS + state.table[now]]
    if session[TURN] > 0:
        before = state.sessions[int(session[CLASS])]
        before[COUNT] += 1
        before[SUM] += request.arrival - session[LATEST]
    kind = min(int(session[TURN]), TURNS - 1) + (TURNS if request.subagent else 0)
    session[TURN] += 1
    session[LATEST] = request.arrival
    session[CLASS] = kind


def on_touch(state, cache, first, last, now):
    """Give the nodes the class of the request."""
    kind = state.sessions[2 * TURNS + state.table[now], CLASS]
    for level in range(first, last):
        state.nodes[cache.path[level], 0] = kind


def setup(trace, capacity, seed, window, prior):
    """Return classes, sessions, and which session sends each request."""
    for name, value in (("window", window), ("prior", prior)):
        if not value > 0:
            raise TraceError(f"{name} is {value}; it must be above 0 s")
    table = conversations(trace)
    state = new_state(trace, scalars=[window], nodes=1, table=table)
    sessions = np.zeros((2 * TURNS + 1 + table.max(initial=0), 3))
    sessions[: 2 * TURNS, COUNT] = 1.0
    sessions[: 2 * TURNS, SUM] = prior
    return state._replace(sessions=sessions)


POLICY = Policy(
    name="wa",
    summary="Evict the leaf least likely to be reused in a window, by turn and sub-agent.",
    source="KVCache in the Wild (ATC'25, 2506.02634), our reading of a secondary source",
    rank=rank,
    setup=setup,
    on_request=on_request,
    on_touch=on_touch,
    rerank="request",
    needs=("sessions, else inferred", "request types (turns stand in)"),
    parameters={"window": 300.0, "prior": 60.0},
)
