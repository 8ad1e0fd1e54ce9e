"""A policy's hooks, compiled."""

from collections.abc import Callable
from functools import cache

import numpy as np

from kvsim.cache.compiling import RANK_ALL, SIGNATURES, Hooks, address_of, compile_as
from kvsim.cache.heap import heapify, is_leaf
from kvsim.cache.policy import ENTRIES, Policy
from kvsim.traces.trace import TraceError


@cache
def compiled(policy: Policy) -> tuple[int, ...]:
    """Return the addresses of a policy's compiled hooks, and of what ranks all its leaves anew."""
    addresses = []
    for name, signature in zip(Hooks._fields, SIGNATURES, strict=True):
        try:
            addresses.append(address_of(signature, getattr(policy, name)))
        except Exception as error:  # Numba passes on what went wrong inside, of any type
            what = f"{type(error).__name__}: {' '.join(str(error).split())}"
            raise TraceError(f"policy {policy.name}: {name} does not compile: {what}") from error
    rank_all = None
    if policy.rank and policy.rerank != "touch":
        rank_all = _rank_all_with(compile_as(SIGNATURES.rank, policy.rank))
    return (*addresses, address_of(RANK_ALL, rank_all))


def _rank_all_with(rank: Callable[..., float]) -> Callable[..., None]:
    # A call through a pointer costs ten times the rank of most policies.
    def rank_all(state, cache, heap, now):  # type: ignore[no-untyped-def]
        nodes, leaves = cache.nodes, heap[0]
        kept = np.int64(0)
        for i in range(cache.counts[ENTRIES]):
            entry = leaves[i]
            block = nodes[entry.node]
            if block.stamp == entry.stamp and is_leaf(block, cache.flat):
                entry.key = rank(state, cache, np.int64(entry.node), now)
                leaves[kept] = entry
                kept += 1
        cache.counts[ENTRIES] = kept
        heapify(leaves, kept)

    return rank_all
