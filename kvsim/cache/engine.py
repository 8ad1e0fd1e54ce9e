"""The engine: one trace replayed under one policy."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from kvsim.cache.compiling import ENTRY, EXPIRE, FIND, NOTE, NOTES, Rules, address_of
from kvsim.cache.hooks import compiled, explained, state_of
from kvsim.cache.loop import find_victim, loop, take_expired
from kvsim.cache.policy import (
    EVICTED,
    EXPIRED,
    FREE_RUN,
    HITS,
    INSERTED,
    NODE,
    QUEUES,
    REQUEST,
    RERANK,
    RUN,
    Cache,
    Policy,
    most_runs,
)
from kvsim.cache.result import Result, cap_hits, counted
from kvsim.traces.trace import Trace, TraceError, on_one_clock


@dataclass(frozen=True)
class Switches:
    """How the cache works, apart from the policy.

    Parameters
    ----------
    eviction : {"leaf", "flat"}
        Only leaves may go, or any unpinned block.
    pinning : bool
        Whether a request's chain is safe from the evictions it causes.
    touch_order : {"deepest-oldest", "root-oldest"}
        Recency among blocks touched by one request.
    hits : {"prefix", "set"}
        The longest resident prefix, or resident blocks counted one by one.
    hit_cap : {None, "engine"}
        Count at most input_tokens - 1 tokens, floored to a block.
    touch : {"chain", "deepest"}
        What a request touches: its whole chain, or what it inserted and its deepest block.
    candidates : int
        Rank only this many least recently used leaves; 0 ranks all.
    """

    eviction: Literal["leaf", "flat"] = "leaf"
    pinning: bool = True
    touch_order: Literal["deepest-oldest", "root-oldest"] = "deepest-oldest"
    hits: Literal["prefix", "set"] = "prefix"
    hit_cap: Literal["engine"] | None = None
    touch: Literal["chain", "deepest"] = "chain"
    candidates: int = 0

    @property
    def one_block_nodes(self) -> bool:
        """Whether blocks of a node can differ in residence beyond a prefix, or in history."""
        return (
            self.eviction == "flat"
            or not self.pinning
            or self.touch == "deepest"
            or self.hits == "set"
        )


def replay(
    trace: Trace,
    policy: Policy,
    capacity: int,
    *,
    ttl: float | None = None,
    switches: Switches = Switches(),
    seed: int = 0,
    parameters: Mapping[str, Any] | None = None,
) -> Result:
    """Replay a trace under one policy, exactly as `kvsim.cache.reference` would.

    Parameters
    ----------
    trace : Trace
        The requests.
    policy : Policy
        Ranks the evictable leaves.
    capacity : int
        Blocks the cache holds.
    ttl : float, optional
        Seconds after its last touch a block lives; for ever unless given.
    switches : Switches
        How the cache works.
    seed : int
        Of policies that draw.
    parameters : mapping, optional
        Parameters of the policy other than their defaults.

    Raises
    ------
    TraceError
        If the trace is on no common clock, capacity, TTL or a parameter makes no sense, or the
        policy's own code fails.
    """
    on_one_clock(trace)
    if capacity < 0:
        raise TraceError(f"capacity is {capacity}; it must be at least 0 blocks")
    if ttl is not None and not ttl >= 0:
        raise TraceError(f"ttl is {ttl}; it must be at least 0 s")
    unknown = set(parameters or {}) - set(policy.parameters)
    if unknown:
        raise TraceError(
            f"policy {policy.name} has no parameter {sorted(unknown)[0]!r}; "
            f"it has: {', '.join(policy.parameters) or 'none'}"
        )
    parameters = {**policy.parameters, **(parameters or {})}
    hit_cap = switches.hit_cap or policy.hit_cap
    if policy.replays:
        if ttl is not None or replace(switches, hit_cap=None) != Switches():
            raise TraceError(
                f"policy {policy.name} is a cache of its own, to which neither a TTL nor "
                "switches but the hit cap apply"
            )
        return cap_hits(policy.replays(trace, policy, capacity, **parameters), hit_cap)
    replayed = trace.expand() if switches.one_block_nodes else trace
    state = state_of(policy, replayed, capacity, seed, parameters)
    cache = _new_cache(replayed, capacity, switches.eviction == "flat")
    candidates = switches.candidates if policy.rank else 0
    rerank = RERANK[policy.rerank] if policy.rank and not candidates else 0
    rules = Rules(
        flat=switches.eviction == "flat",
        pinning=switches.pinning,
        turned=0 if switches.touch_order == "root-oldest" else 2**31 - 1,
        set_hits=switches.hits == "set",
        deepest_only=switches.touch == "deepest",
        candidates=candidates,
        rerank=rerank,
        uniform=policy.uniform,
        ttl=np.inf if ttl is None else float(ttl),
        # Sampled candidates stand in one queue in order of recency; ranks come at eviction.
        ranks=policy.rank is not None and candidates == 0,
        turns=policy.turn is not None,
        queues=QUEUES if policy.turn and candidates == 0 else 1,
    )
    # Beyond 2 m entries stale ones are dropped; one request adds at most 2 m.
    heap = np.empty((rules.queues, 4 * len(cache.nodes) + 32), dtype=ENTRY)
    plain = rerank == 0 and policy.turn is None and candidates < 2
    finding = address_of(FIND, None if plain else find_victim)
    expiring = address_of(EXPIRE, None if ttl is None else take_expired)
    hooks = compiled(policy)
    with explained(policy, state, cache):
        loop()(cache, state, *hooks, finding, expiring, rules, heap)
    flow = {
        "inserted_blocks": int(cache.counts[INSERTED]),
        "evicted_blocks": int(cache.counts[EVICTED]),
        "expired_blocks": int(cache.counts[EXPIRED]),
    }
    blocks, tokens = (cache.requests[name].copy() for name in HITS)
    return cap_hits(counted(trace, policy.name, capacity, blocks, tokens, **flow), hit_cap)


def _new_cache(trace: Trace, capacity: int, flat: bool) -> Cache:
    requests = np.zeros(trace.requests, dtype=REQUEST)
    for name in set(REQUEST.names or ()) - set(HITS):
        requests[name] = getattr(trace, name)
    nodes = np.zeros(len(trace.tree.parent), dtype=NODE)
    for name in trace.tree._fields:
        nodes[name] = getattr(trace.tree, name)
    for name in ("last", "pinned", "run"):
        nodes[name] = -1
    runs = np.empty(most_runs(trace, capacity), dtype=RUN)
    counts = np.zeros(NOTE + NOTES, dtype=np.int64)
    counts[FREE_RUN] = -1
    return Cache(
        nodes=nodes,
        runs=runs,
        requests=requests,
        counts=counts,
        path=np.empty(int(trace.chain_blocks.max(initial=0)), dtype=np.int64),
        capacity=capacity,
        block_size=trace.block_size,
        flat=flat,
    )
