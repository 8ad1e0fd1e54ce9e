"""UniCache's score: the worth of a queue's room times the chance that its block is needed.

Source: UniCache (SIGMETRICS'26), our reading of a secondary source: evict argmin α · s.
A session's blocks score s = 1 − Φ((ln idle − `mu`) / `sigma`), a log-normal survival of the
session's idle seconds; template blocks score 1 − offset / longest template. α is a moving
average of each queue's hits a resident block, the newest `period` weighing `weight`.

Parameters: `mu`, `sigma` in log seconds (the agents' by default; the chats' are 4.77 and
1.279); `weight` a ratio; `period` in requests. Cost: O(leaves) a request that evicts. Adapted:
traces lack labels, so blocks that two sessions used are the templates; without sessions,
conversations are inferred. The evict-first queue is left out: it takes blocks of answers and
of single turns without a template, which no trace marks.
"""

import math

import numpy as np

from kvsim.cache.policies.hazard import conversations
from kvsim.cache.policy import Policy, new_state
from kvsim.traces.trace import TraceError

MU, SIGMA, WEIGHT, PERIOD, LONGEST = range(5)
WORTH, HITS, HELD = 5, 7, 9  # two each: sessions, templates
OWNER, SHARED, QUEUE, COUNTED = range(4)


def rank(state, cache, node, now):
    """Rank by α · s."""
    scalars = state.scalars
    if state.nodes[node, QUEUE] > 0:
        offset = cache.nodes[node].depth + cache.nodes[node].resident - 1
        return scalars[WORTH + 1] * (1.0 - offset / scalars[LONGEST])
    idle = cache.requests[now].arrival - state.sessions[int(state.nodes[node, OWNER]), 0]
    if idle <= 0:
        return scalars[WORTH]
    score = (math.log(idle) - scalars[MU]) / scalars[SIGMA]
    return scalars[WORTH] * 0.5 * math.erfc(score / math.sqrt(2.0))


def on_request(state, cache, now, hit_blocks):
    """Count hits by queue; weigh the queues anew after a period."""
    scalars = state.scalars
    session = state.table[now]
    state.sessions[session, 0] = cache.requests[now].arrival
    node = np.int64(cache.requests[now].terminal)
    while node >= 0:
        block = cache.nodes[node]
        row = state.nodes[node]
        scalars[HITS + int(row[QUEUE])] += min(max(hit_blocks - block.depth, 0), block.length)
        if row[OWNER] >= 0 and row[OWNER] != session:
            row[SHARED] = 1.0
            scalars[LONGEST] = max(scalars[LONGEST], float(block.depth + block.length))
        row[OWNER] = session
        node = np.int64(block.parent)
    if (now + 1) % int(scalars[PERIOD]) == 0:
        for queue in range(2):
            worth = scalars[HITS + queue] / max(scalars[HELD + queue], 1.0)
            scalars[WORTH + queue] += scalars[WEIGHT] * (worth - scalars[WORTH + queue])
            scalars[HITS + queue] = 0.0


def on_touch(state, cache, first, last, now):
    """Count what is resident by queue."""
    for level in range(first, last):
        node = cache.path[level]
        row = state.nodes[node]
        state.scalars[HELD + int(row[QUEUE])] -= row[COUNTED]
        row[QUEUE] = row[SHARED]
        row[COUNTED] = cache.nodes[node].resident
        state.scalars[HELD + int(row[QUEUE])] += row[COUNTED]


def on_remove(state, cache, node, blocks, now, expired):
    """Count what is gone by queue."""
    row = state.nodes[node]
    state.scalars[HELD + int(row[QUEUE])] -= blocks
    row[COUNTED] -= blocks


def take(state, cache, node, blocks, now):
    """Let templates go block by block."""
    return 1 if state.nodes[node, QUEUE] > 0 else blocks


def setup(trace, capacity, seed, mu, sigma, weight, period):
    """Return parameters, queues, owners, and which session sends each request."""
    if not sigma > 0:
        raise TraceError(f"sigma is {sigma}; it must be above 0")
    if period < 1:
        raise TraceError(f"period is {period}; it must be at least 1 request")
    table = conversations(trace)
    scalars = [mu, sigma, weight, period, 1.0, 1.0, 1.0, *[0.0] * 4]
    state = new_state(trace, scalars=scalars, nodes=4, table=table)
    state.nodes[:, OWNER] = -1.0
    return state._replace(sessions=np.zeros((1 + table.max(initial=0), 1)))


POLICY = Policy(
    name="unicache",
    summary="Evict the least worth of the queue's room × chance that the block is needed.",
    source="UniCache (SIGMETRICS'26), our reading of a secondary source",
    rank=rank,
    setup=setup,
    on_request=on_request,
    on_touch=on_touch,
    on_remove=on_remove,
    take=take,
    rerank="request",
    needs=("sessions, else inferred", "template labels (sharing stands in)"),
    parameters={"mu": 1.81, "sigma": 1.092, "weight": 0.1, "period": 100},
)
