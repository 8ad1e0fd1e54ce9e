"""A policy's hooks, compiled; those from outside the package are watched.

A watched hook runs with its indexes checked and notes what it is called with; a rank that is
NaN or of no queue, and a number of blocks that the victim does not have, end the run in one line.
The package's own hooks, which the tests check, pay for none of it.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from inspect import isfunction
from typing import Any

import numpy as np
from numba import njit, typeof

from kvsim.cache import blame
from kvsim.cache.compiling import (
    NOTE,
    RANK_ALL,
    SIGNATURES,
    STATE_TYPE,
    Hooks,
    address_of,
    compile_as,
    is_outside,
)
from kvsim.cache.heap import heapify, is_leaf
from kvsim.cache.policy import ENTRIES, QUEUE, QUEUES, Cache, Policy, State
from kvsim.traces.trace import Trace, TraceError

ARGUMENTS = Hooks(
    rank=("state", "cache", "node", "now"),
    on_request=("state", "cache", "now", "hit_blocks"),
    on_touch=("state", "cache", "first", "last", "now"),
    on_remove=("state", "cache", "node", "blocks", "now", "expired"),
    take=("state", "cache", "node", "blocks", "now"),
    turn=("state", "cache", "now"),
)
RANGES = {
    "rank": "a rank is a number, never NaN, and from 0 to below 4 * QUEUE where there is a `turn`",
    "take": "from 0 to the node's resident blocks may go",
}


@cache
def compiled(policy: Policy) -> tuple[int, ...]:
    """Return the addresses of a policy's compiled hooks, and of what ranks all its leaves anew.

    Raises
    ------
    TraceError
        If a hook takes other arguments than it is called with, or does not compile.
    """
    hooks = Hooks(*(_runnable(policy, hook) for hook in Hooks._fields))
    rank_all = None
    if policy.rank and policy.rerank != "touch":
        rank_all = _rank_all_with(compile_as(SIGNATURES.rank, hooks.rank))
    addresses = map(address_of, SIGNATURES, hooks)
    return (*addresses, address_of(RANK_ALL, rank_all))


def state_of(
    policy: Policy, trace: Trace, capacity: int, seed: int, parameters: Mapping[str, Any]
) -> State:
    """Return a new state of a policy.

    Raises
    ------
    TraceError
        If `setup` takes other arguments, fails, or returns no `State` of the right arrays.
    """
    wrong = blame.arguments(policy.setup, ("trace", "capacity", "seed"), tuple(parameters))
    if wrong:
        raise TraceError(f"policy {policy.name}: setup: {wrong}")
    try:
        state = policy.setup(trace, capacity, seed, **parameters)
    except TraceError:
        raise
    except Exception as error:
        if not is_outside(policy.setup):
            raise
        what = blame.calling(policy.setup, error)
        raise TraceError(f"policy {policy.name}: setup: {what}") from error
    if typeof(state) != STATE_TYPE:
        raise TraceError(
            f"policy {policy.name}: setup: {blame.place(policy.setup)}: it returned "
            f"{typeof(state)}; it must return what new_state returns, {STATE_TYPE}"
        )
    return state


@contextmanager
def explained(policy: Policy, state: State, cache: Cache) -> Iterator[None]:
    """Turn what a watched hook raises into one line that names its file and line."""
    try:
        yield
    except Exception as error:
        number, *values = cache.counts[NOTE:].tolist()
        if not number:
            raise
        hook = Hooks._fields[number - 1]
        given = values[: len(getattr(ARGUMENTS, hook)) - 2]
        what = blame.running(getattr(policy, hook), state, cache, given, error)
        if hook in RANGES and isinstance(error, ValueError) and not error.args:
            what += f"; {RANGES[hook]}"
        raise TraceError(f"policy {policy.name}: {hook}: {what}") from error


def _runnable(policy: Policy, hook: str) -> Callable[..., Any] | None:
    """Return a hook as it is to be compiled: watched if it comes from outside."""
    function = getattr(policy, hook)
    if function is None:
        return None
    function = blame.plain(function)
    if not isfunction(function):
        raise TraceError(f"policy {policy.name}: {hook} is {function!r}; it must be a function")
    wrong = blame.arguments(function, getattr(ARGUMENTS, hook))
    if wrong:
        raise TraceError(f"policy {policy.name}: {hook}: {wrong}")
    try:
        code = compile_as(getattr(SIGNATURES, hook), function)
    except Exception as error:  # Numba passes on what went wrong inside, of any type
        what = blame.compiling(function, error)
        raise TraceError(f"policy {policy.name}: {hook} does not compile: {what}") from error
    if not is_outside(function):
        return function
    return _watched(hook, code, policy.turn is not None)


@njit(inline="always")
def _note(cache, hook, first, second, third, fourth):
    cache.counts[NOTE] = hook
    cache.counts[NOTE + 1] = first
    cache.counts[NOTE + 2] = second
    cache.counts[NOTE + 3] = third
    cache.counts[NOTE + 4] = fourth


def _watched(hook: str, code: Any, turns: bool) -> Callable[..., Any]:
    """Return a function that notes its arguments, calls a compiled hook and checks the answer."""
    number = 1 + Hooks._fields.index(hook)
    low, high = (0.0, np.nextafter(QUEUES * QUEUE, 0.0)) if turns else (-np.inf, np.inf)

    def rank(state, cache, node, now):  # type: ignore[no-untyped-def]
        _note(cache, number, node, now, 0, 0)
        key = code(state, cache, node, now)
        if not low <= key <= high:
            raise ValueError
        return key

    def on_request(state, cache, now, hit_blocks):  # type: ignore[no-untyped-def]
        _note(cache, number, now, hit_blocks, 0, 0)
        code(state, cache, now, hit_blocks)

    def on_touch(state, cache, first, last, now):  # type: ignore[no-untyped-def]
        _note(cache, number, first, last, now, 0)
        code(state, cache, first, last, now)

    def on_remove(state, cache, node, blocks, now, expired):  # type: ignore[no-untyped-def]
        _note(cache, number, node, blocks, now, expired)
        code(state, cache, node, blocks, now, expired)

    def take(state, cache, node, blocks, now):  # type: ignore[no-untyped-def]
        _note(cache, number, node, blocks, now, 0)
        going = code(state, cache, node, blocks, now)
        if not 0 <= going <= cache.nodes[node].resident:
            raise ValueError
        return going

    def turn(state, cache, now):  # type: ignore[no-untyped-def]
        _note(cache, number, now, 0, 0, 0)
        return code(state, cache, now)

    watches: dict[str, Callable[..., Any]] = {
        watch.__name__: watch for watch in (rank, on_request, on_touch, on_remove, take, turn)
    }
    return watches[hook]


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
