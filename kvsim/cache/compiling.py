"""How functions are compiled: types, signatures, and calls of code by its address."""

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numba import from_dtype, njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from kvsim.cache.policy import ENTRIES, NODE, QUEUES, REQUEST, RUN, Cache, State

NOTE = ENTRIES + QUEUES  # in Cache.counts: the watched hook called last, and up to 4 arguments
NOTES = 5
# A candidate for eviction; the one with the smallest (key, recency) goes first.
ENTRY = np.dtype([("key", "f8"), ("recency", "i8"), ("stamp", "i8"), ("node", "i4")], align=True)


class Rules(NamedTuple):
    """Switches and policy traits in the form the kernel takes."""

    flat: bool
    pinning: bool
    turned: int  # bits of a depth that recency sees turned round
    set_hits: bool
    deepest_only: bool
    candidates: int
    rerank: int
    uniform: bool
    ttl: float
    ranks: bool
    turns: bool
    queues: int


class Hooks(NamedTuple):
    """A policy's compiled functions."""

    rank: Any
    on_request: Any
    on_touch: Any
    on_remove: Any
    take: Any
    turn: Any


STATE_TYPE = types.NamedTuple(
    (types.float64[::1], *[types.float64[:, ::1]] * 3, types.int64[::1]), State
)
CACHE_TYPE = types.NamedTuple(
    (
        *(from_dtype(record)[::1] for record in (NODE, RUN, REQUEST)),
        types.int64[::1],
        types.int64[::1],
        types.int64,
        types.int64,
        types.boolean,
    ),
    Cache,
)
SIGNATURES = Hooks(
    rank=types.float64(STATE_TYPE, CACHE_TYPE, types.int64, types.int64),
    on_request=types.void(STATE_TYPE, CACHE_TYPE, types.int64, types.int64),
    on_touch=types.void(STATE_TYPE, CACHE_TYPE, types.int64, types.int64, types.int64),
    on_remove=types.void(
        STATE_TYPE, CACHE_TYPE, types.int64, types.int64, types.int64, types.boolean
    ),
    take=types.int64(STATE_TYPE, CACHE_TYPE, types.int64, types.int64, types.int64),
    turn=types.int64(STATE_TYPE, CACHE_TYPE, types.int64),
)
SCALARS = {bool: types.boolean, int: types.int64, float: types.float64}
RULES_TYPE = types.NamedTuple([SCALARS[of] for of in Rules.__annotations__.values()], Rules)
HEAP_TYPE = from_dtype(ENTRY)[:, ::1]
INDEX = types.int64
# Of what ranks all leaves anew, which is compiled with a policy's `rank` in it, of `find_victim`
# and of `take_expired`.
# Most runs need none of them, so the loop is compiled without them and calls them by address.
RANK_ALL = types.void(STATE_TYPE, CACHE_TYPE, HEAP_TYPE, INDEX)
FIND = INDEX(
    STATE_TYPE, CACHE_TYPE, HEAP_TYPE, INDEX, INDEX, INDEX, RULES_TYPE, types.boolean, INDEX
)
EXPIRE = INDEX(STATE_TYPE, CACHE_TYPE, HEAP_TYPE, INDEX, INDEX, RULES_TYPE, INDEX, INDEX)
# Parts of compiled functions, which Python does not call. They need none of Numba's rewrites, such
# as of expressions on whole arrays, which take a sixth of the time.
INNER: dict[str, Any] = {
    "no_cpython_wrapper": True,
    "no_cfunc_wrapper": True,
    "no_rewrites": True,
    "_nrt": False,
}
part = njit(**INNER)


def _caller(signature: Any) -> Any:
    """Return a compiled function ``(address, *arguments)`` that calls code of this signature.

    Numba's own pointers to functions do it in three ways at every call, and most of the time that
    the loop takes to compile goes into calls.
    """

    @intrinsic
    def call(typing_context, address, *arguments):  # type: ignore[no-untyped-def]
        def generate(context, builder, _, values):  # type: ignore[no-untyped-def]
            kind = context.call_conv.get_function_type(signature.return_type, signature.args)
            status, result = context.call_conv.call_function(
                builder,
                builder.inttoptr(values[0], kind.as_pointer()),
                signature.return_type,
                signature.args,
                cgutils.unpack_tuple(builder, values[1]),
            )
            with cgutils.if_unlikely(builder, status.is_error):
                context.call_conv.return_status_propagate(builder, status)
            return result

        return signature.return_type(INDEX, types.StarArgTuple(signature.args)), generate

    return call


call_rank, call_on_request, call_on_touch, call_on_remove, call_take, call_turn = map(
    _caller, SIGNATURES
)
call_rank_all, call_find, call_expire = map(_caller, (RANK_ALL, FIND, EXPIRE))


def address_of(signature: Any, function: Callable[..., Any] | None) -> int:
    """Compile a function that the loop calls by address; None, which it never calls, has 0."""
    if function is None:
        return 0
    [code] = compile_as(signature, function).overloads.values()
    address: int = code.library.get_pointer_to_function(code.fndesc.llvm_func_name)
    return address


@cache
def compile_as(signature: Any, function: Callable[..., Any]) -> Any:
    """Compile a function for one signature; the package's own come back from the disk."""
    # Code comes back from the disk only if its module can be imported, and a closure never does.
    outside = is_outside(function)
    kept = not outside and function.__closure__ is None
    options = {**INNER, "no_rewrites": False, "boundscheck": outside}
    return njit(signature, cache=kept, **options)(function)


def is_outside(function: Callable[..., Any]) -> bool:
    """Return whether a function comes from outside the package, whose own are tested."""
    return not function.__module__.startswith("kvsim.")
