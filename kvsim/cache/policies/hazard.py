"""The study's three ideas, singly and together: hazard, recompute cost, coherent sessions.

Source: the study that this book answers names three ideas and publishes no
formulas, and it measures C and G only on top of H. What follows is our reading.
One rule serves all seven policies; with every idea off it is LRU. A leaf is
worth ``p * c``, and the least worthy goes first, LRU among equals.

* p without H is 1 / (1 + age), age in requests since the leaf was used.
* p with H (hazard: online Bayesian P(session returns)) is the probability that
  the leaf's session sends a request in the next `horizon` seconds, given that it
  has been idle for a seconds and has come back n times after gaps of T seconds
  in all. After each request a session ends with probability q, with a prior
  Beta(`ends`, `returns`), else it returns after an exponential gap whose rate has
  a prior of `weight` gaps of `gap` seconds (gamma). With q = ends / (ends +
  returns + n), A = weight + n, B = weight * gap + T, S(a) = (B / (B + a))^A:
  p = (1 - q) (S(a) - S(a + horizon)) / (q + (1 - q) S(a)).
  All of it is known at the time: no oracle.
* c without C is 1. With C (late tokens attend to more) it is the FLOPs of
  recomputing a token of the leaf relative to the first token of a prompt,
  1 + position / `doubling`, position being the tokens above the leaf's block and
  `doubling` the position in tokens where attention costs as much as the weights
  (`kvsim.cache.costs`). FLOPs a token, not a block, as memory is paid by the token.
* With G (coherent, session-granular) p and c are the session's: age counts from
  its latest request and position is the mean in its latest prompt. Once a session
  loses a block, its others go before those of any other session, until none
  is left or it sends a request. Nothing goes before there is need.

A block belongs to the session that used it last; sub-agents share their
session. Where the trace has no sessions, a request continues the conversation of
an earlier one if it repeats all but the last block of that one's chain, and at
least two blocks (`conversations`).

Parameters: `horizon`, `gap` in seconds; `weight` in gaps; `returns`, `ends` in
requests; `doubling` in tokens. To rank only the k least recently used leaves set
`Switches.candidates`. Cost: O(leaves) a request that evicts.
"""

import numpy as np
from numba import njit

from kvsim.cache.costs import LLAMA_3_70B
from kvsim.cache.policy import Policy, new_state
from kvsim.traces.trace import Trace

# Scalars.
HAZARD, COST, COHERENT, HORIZON, GAP, WEIGHT, RETURNS, ENDS, DOUBLING = range(9)
# Columns of a session; LOST is 1 + the request at which it began to lose blocks, 0 = whole;
# CHANCE was worked out at request AT, once for all leaves of the session.
REQUESTS, LATEST, ARRIVAL, GAPS, PROMPT, LOST, CHANCE, AT = range(8)

HAZARD_PARAMETERS = {"horizon": 300.0, "gap": 60.0, "weight": 1.0, "returns": 1.0, "ends": 1.0}
COST_PARAMETERS = {"doubling": LLAMA_3_70B.doubling}


@njit(cache=True)
def chance(returns, gaps, idle, scalars):
    """Return P(the session sends a request within the horizon).

    `returns` requests came after `gaps` seconds of gaps in all, and the session
    has been idle for `idle` seconds.
    """
    shape = scalars[WEIGHT] + returns
    scale = scalars[WEIGHT] * scalars[GAP] + gaps
    end = scalars[ENDS] / (scalars[ENDS] + scalars[RETURNS] + returns)
    alive = (1.0 - end) * (scale / (scale + idle)) ** shape
    soon = 1.0 - ((scale + idle) / (scale + idle + scalars[HORIZON])) ** shape
    return alive * soon / (end + alive)


def rank(state, cache, node, now):
    """Rank by probability of return times cost."""
    scalars = state.scalars
    block = cache.nodes[node]
    session = state.sessions[int(state.nodes[node, 0])]
    age = float(now - block.last)
    position = float(block.tokens_above + np.int64(block.resident - 1) * cache.block_size)
    if scalars[COHERENT]:
        # Within the request that began it, the session still ranks below all others.
        if 0 < session[LOST] <= now:
            return -np.inf
        age = now - session[LATEST]
        position = session[PROMPT] / 2.0
    if scalars[HAZARD]:
        if session[AT] != now:
            idle = cache.requests[now].arrival - session[ARRIVAL]
            session[CHANCE] = chance(session[REQUESTS] - 1.0, session[GAPS], idle, scalars)
            session[AT] = now
        worth = session[CHANCE]
    else:
        worth = 1.0 / (1.0 + age)
    if scalars[COST]:
        worth *= 1.0 + position / scalars[DOUBLING]
    return worth


def on_request(state, cache, now, hit_blocks):
    """Note the request in its session's history."""
    request = cache.requests[now]
    session = state.sessions[state.table[now]]
    if session[REQUESTS] > 0:
        session[GAPS] += request.arrival - session[ARRIVAL]
    session[REQUESTS] += 1
    session[LATEST] = now
    session[ARRIVAL] = request.arrival
    session[PROMPT] = request.input_tokens
    session[LOST] = 0
    session[AT] = -1  # whatever was worked out at this request came before it


def on_touch(state, cache, first, last, now):
    """Give the nodes to the request's session."""
    for level in range(first, last):
        state.nodes[cache.path[level], 0] = state.table[now]


def on_remove(state, cache, node, blocks, now, expired):
    """Note that a session began to lose blocks."""
    session = state.sessions[int(state.nodes[node, 0])]
    if not expired and session[LOST] == 0:
        session[LOST] = now + 1


def conversations(trace: Trace) -> np.ndarray:
    """Return the session of each request, inferred from chains where the trace has none.

    A request continues the conversation of the earlier request that used the
    deepest block it repeats last, if it repeats all but the last block (which was
    partial) of that one's chain and at least two blocks.

    Returns
    -------
    int64[n]
    """
    if trace.sessions is not None or not trace.requests:
        return trace.session.astype(np.int64)
    return _conversations(trace.terminal, trace.tree.parent, trace.chain_blocks, trace.seen_blocks)


@njit(cache=True)
def _conversations(terminal, parent, chain_blocks, seen_blocks):
    latest = np.full(len(parent), -1)  # request that used the node last
    conversation = np.empty(len(terminal), dtype=np.int64)
    begun = 0
    for now in range(len(terminal)):
        earlier = -1
        node = np.int64(terminal[now])
        while node >= 0:
            if earlier < 0:
                earlier = latest[node]
            latest[node] = now
            node = np.int64(parent[node])
        seen = seen_blocks[now]
        if earlier >= 0 and seen >= max(2, chain_blocks[earlier] - 1):
            conversation[now] = conversation[earlier]
        else:
            conversation[now] = begun
            begun += 1
    return conversation


def _policy(ideas: str, summary: str) -> Policy:
    """Return the policy of some ideas, a letter each."""

    def setup(
        trace,
        capacity,
        seed,
        horizon=1.0,
        gap=1.0,
        weight=1.0,
        returns=1.0,
        ends=1.0,
        doubling=1.0,
    ):
        flags = [idea in ideas for idea in "hcg"]
        scalars = [*flags, horizon, gap, weight, returns, ends, doubling]
        session = conversations(trace)
        state = new_state(trace, scalars=scalars, nodes=1, table=session)
        return state._replace(sessions=np.zeros((1 + session.max(initial=0), 8)))

    return Policy(
        name=ideas,
        summary=summary,
        source="the study, our reading (it publishes no formulas)",
        rank=rank,
        setup=setup,
        on_request=on_request,
        on_touch=on_touch,
        on_remove=on_remove,
        rerank="request",
        parameters=(HAZARD_PARAMETERS if "h" in ideas else {})
        | (COST_PARAMETERS if "c" in ideas else {}),
    )


H = _policy("h", "Evict the leaf whose session is least likely to return soon.")
C = _policy("c", "Evict the leaf with the least recompute cost by age.")
G = _policy("g", "Evict the least recently used session, all its blocks together.")
HC = _policy("hc", "Evict the leaf with the least P(session returns) times recompute cost.")
HG = _policy("hg", "Evict the session least likely to return, all its blocks together.")
CG = _policy("cg", "Evict the session with the least recompute cost by age, as a whole.")
HCG = _policy("hcg", "Evict the session with the least P(returns) times cost, as a whole.")
FACTORIAL = (H, C, G, HC, HG, CG, HCG)
