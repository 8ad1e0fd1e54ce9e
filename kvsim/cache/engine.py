"""The compiled replay loop: residency, capacity, pins and counts live here.

A policy only ranks evictable leaves. In leaf mode with pins a node of the
radix tree stands for all its blocks and its residency is one number; the
other modes run the same loop on the tree of one block a node.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from typing import Any, Literal, NamedTuple

import numpy as np
from numba import from_dtype, njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from kvsim.traces.trace import Trace, TraceError

NODE = np.dtype(
    [
        ("parent", "i4"),
        ("length", "i4"),
        ("depth", "i4"),
        ("tail_tokens", "i4"),
        ("tokens_above", "i8"),
        ("resident", "i4"),  # leading blocks resident
        ("children", "i4"),  # child nodes with a resident block
        ("last", "i4"),  # request that touched the node last, -1 never
        ("pinned", "i4"),  # request that pinned the node last
        ("run", "i4"),  # newest run, -1 none
        ("uses", "i8"),  # touches so far
        ("stamp", "i8"),  # the node's valid heap entry
    ],
    align=True,
)
# Resident blocks of one node that were inserted together; a node's runs form a stack.
RUN = np.dtype(
    [
        ("start", "i4"),  # first block within the node
        ("birth", "i4"),  # request that inserted it
        ("uses", "i8"),  # the node's `uses` before that
        ("below", "i4"),  # older run of the node, -1 none
    ],
    align=True,
)
REQUEST = np.dtype(
    [
        ("arrival", "f8"),
        ("service", "f8"),
        ("input_tokens", "i8"),
        ("output_tokens", "i8"),
        ("session", "i4"),
        ("terminal", "i4"),
        ("subagent", "?"),
        ("hit_blocks", "i8"),  # counted as the request is replayed
        ("hit_tokens", "i8"),
    ],
    align=True,
)
HITS = ("hit_blocks", "hit_tokens")
# A candidate for eviction; the one with the smallest (key, recency) goes first.
ENTRY = np.dtype([("key", "f8"), ("recency", "i8"), ("stamp", "i8"), ("node", "i4")], align=True)

# Entries of Cache.counts; from ENTRIES on one a queue.
USED, INSERTED, EVICTED, EXPIRED, STAMP, FREE_RUN, RUNS, STEADY, ENTRIES = range(9)
QUEUES = 4  # that a policy may keep
QUEUE = 2.0**48  # a rank from i * QUEUE on belongs to queue i
RERANK = {"touch": 0, "request": 1, "eviction": 2}


class Cache(NamedTuple):
    """What a policy sees: the state of the cache and of the trace.

    Attributes
    ----------
    nodes : NODE[m]
    runs : RUN[]
    requests : REQUEST[n]
    counts : int64[]
        Indexed by ``USED, INSERTED, EVICTED, EXPIRED`` (blocks) and internals.
    path : int64[]
        Nodes of the request in process, deepest first.
    capacity, block_size : int
        Blocks; tokens.
    flat : bool
        Whether any block may be evicted, or only leaves.
    """

    nodes: np.ndarray
    runs: np.ndarray
    requests: np.ndarray
    counts: np.ndarray
    path: np.ndarray
    capacity: int
    block_size: int
    flat: bool


class State(NamedTuple):
    """What a policy remembers; the policy gives the columns their meaning.

    Attributes
    ----------
    scalars : float64[]
        Parameters and running numbers.
    nodes : float64[m, columns]
        A row a node of the tree.
    sessions : float64[s, columns]
        A row a session; one row where the trace has none.
    runs : float64[r, columns]
        A row a run, indexed as `Cache.runs`. A run's index is used again once the run is gone,
        so whoever sees a run born now sets its row.
    table : int64[]
        Look-up data.
    """

    scalars: np.ndarray
    nodes: np.ndarray
    sessions: np.ndarray
    runs: np.ndarray
    table: np.ndarray


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
# Of `_rank_all_with`, which is compiled with a policy's `rank` in it, `_find` and `_expire`.
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


def new_state(
    trace: Trace,
    *,
    scalars: Sequence[float] = (),
    nodes: int = 0,
    sessions: int = 0,
    runs: int = 0,
    capacity: int = 0,
    table: np.ndarray | None = None,
) -> State:
    """Allocate a policy's state, zeroed.

    Parameters
    ----------
    trace : Trace
        Gives the numbers of nodes and sessions.
    scalars : sequence of float
        Values of the scalars.
    nodes, sessions, runs : int
        Columns a node, a session and a run.
    capacity : int
        Blocks the cache holds, which bound the number of runs.
    table : int64[], optional
        Look-up data.
    """
    rows = 1 + max(int(trace.session.max(initial=0)), 0)
    return State(
        np.array(scalars, dtype=np.float64),
        np.zeros((len(trace.tree.parent), nodes)),
        np.zeros((rows, sessions)),
        np.zeros((most_runs(trace, capacity) if runs else 0, runs)),
        np.zeros(0, dtype=np.int64) if table is None else np.asarray(table, dtype=np.int64),
    )


def most_runs(trace: Trace, capacity: int) -> int:
    """Return how many runs there can be: each holds at least one resident block."""
    return min(capacity, trace.distinct_blocks) + 1


def no_state(trace: Trace, capacity: int, seed: int) -> State:
    """Return the state of a policy that keeps none."""
    return new_state(trace)


@dataclass(frozen=True, eq=False)
class Policy:
    """An eviction policy: what the engine compiles into its loop.

    The compiled functions may not allocate; `setup` can put scratch arrays into the state.

    Parameters
    ----------
    name : str
        Key in tables and on the command line.
    summary : str
        The rule in one sentence.
    source : str
        Publication or code the rule comes from.
    rank : function ``(state, cache, node, now) -> float``, optional
        Compiled by the engine, as the hooks are. Rank of the node's deepest resident
        block, never NaN; the smallest is evicted first, ties go to the least recently used.
        None ranks all alike.
    setup : function ``(trace, capacity, seed, **parameters) -> State``
        Allocate the state, see `new_state`.
    on_request : function ``(state, cache, now, hit_blocks)``, optional
        Called after look-up, before room is made.
    on_touch : function ``(state, cache, first, last, now)``, optional
        Called after insertion: ``cache.path[first:last]`` are touched nodes, deepest first.
    on_remove : function ``(state, cache, node, blocks, now, expired)``, optional
        Called after `blocks` blocks left the node's end.
    take : function ``(state, cache, node, blocks, now) -> int``, optional
        Called before `blocks` blocks of the victim's newest run go; returns how many do go.
        None spares the victim, which must have changed its rank or the next answer.
    turn : function ``(state, cache, now) -> int``, optional
        Asked before each victim where ranks name queues: a rank from ``i * QUEUE`` on belongs
        to queue i. Returns the order of the queues, see `order_of`; the first that has an
        evictable leaf gives it up. So ranks need not change when turns do.
    rerank : {"touch", "request", "eviction"}
        When ranks change: only if the node is touched, with every request,
        or with every eviction. While a policy sets ``cache.counts[STEADY]`` to 1,
        requests change none.
    uniform : bool
        Whether a run's blocks keep their place in the order while its tail
        goes, so that the run may be evicted in one piece.
    hit_cap : {None, "engine"}
        The hit cap that belongs to the policy, whatever the switches say.
    replays : function ``(trace, policy, capacity, **parameters) -> Result``, optional
        Replays a trace in a cache of its own, in place of everything above; of TTL and
        switches the hit cap alone applies to it.
    needs : tuple of str
        What the rule wants beyond chains and times, such as "future".
    parameters : dict
        Defaults of the parameters of `setup`.
    """

    name: str
    summary: str
    source: str
    rank: Callable[..., float] | None = None
    setup: Callable[..., State] = no_state
    on_request: Callable[..., None] | None = None
    on_touch: Callable[..., None] | None = None
    on_remove: Callable[..., None] | None = None
    take: Callable[..., int] | None = None
    turn: Callable[..., int] | None = None
    rerank: Literal["touch", "request", "eviction"] = "touch"
    uniform: bool = True
    hit_cap: Literal["engine"] | None = None
    replays: Callable[..., "Result"] | None = None
    needs: tuple[str, ...] = ()
    parameters: Mapping[str, Any] = field(default_factory=dict)


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


@dataclass(frozen=True, eq=False)
class Result:
    """Per-request counts of one run.

    Attributes
    ----------
    policy : str
    capacity : int
        Blocks.
    hit_blocks, hit_tokens : int64[n]
        Hits counted, in the trace's row order.
    capped_blocks, capped_tokens : int64[n]
        Hits that the engine's hit cap does not count.
    inserted_blocks, evicted_blocks, expired_blocks : int or None
        Flow of blocks; None for a bound that has no flow.
    """

    policy: str
    capacity: int
    hit_blocks: np.ndarray
    hit_tokens: np.ndarray
    capped_blocks: np.ndarray
    capped_tokens: np.ndarray
    inserted_blocks: int | None = None
    evicted_blocks: int | None = None
    expired_blocks: int | None = None


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
    """Replay a trace under one policy; DESIGN section 3, exactly.

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
        If capacity, TTL or a parameter makes no sense.
    """
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
    capped = replace(switches, hit_cap=switches.hit_cap or policy.hit_cap)
    if policy.replays:
        if ttl is not None or replace(switches, hit_cap=None) != Switches():
            raise TraceError(
                f"policy {policy.name} is a cache of its own, to which neither a TTL nor "
                "switches but the hit cap apply"
            )
        return cap_hits(trace, policy.replays(trace, policy, capacity, **parameters), capped)
    if switches.one_block_nodes:
        trace = trace.expand()
    state = policy.setup(trace, capacity, seed, **parameters)
    cache = _new_cache(trace, capacity, switches.eviction == "flat")
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
    find = _address_of(FIND, None if plain else _find)
    expire = _address_of(EXPIRE, None if ttl is None else _expire)
    _loop()(cache, state, *compiled(policy), find, expire, rules, heap)
    flow = {
        "inserted_blocks": int(cache.counts[INSERTED]),
        "evicted_blocks": int(cache.counts[EVICTED]),
        "expired_blocks": int(cache.counts[EXPIRED]),
    }
    blocks, tokens = (cache.requests[name].copy() for name in HITS)
    return cap_hits(trace, counted(policy.name, capacity, blocks, tokens, **flow), capped)


def order_of(*queues: int) -> int:
    """Return the order of queues as `turn` gives it, the first one's number in the lowest bits."""
    return sum(queue << 2 * position for position, queue in enumerate(queues))


@cache
def compiled(policy: Policy) -> tuple[int, ...]:
    """Return the addresses of a policy's compiled hooks, and of what ranks all its leaves anew."""
    addresses = []
    for name, signature in zip(Hooks._fields, SIGNATURES, strict=True):
        try:
            addresses.append(_address_of(signature, getattr(policy, name)))
        except Exception as error:  # Numba passes on what went wrong inside, of any type
            what = f"{type(error).__name__}: {' '.join(str(error).split())}"
            raise TraceError(f"policy {policy.name}: {name} does not compile: {what}") from error
    rank_all = None
    if policy.rank and policy.rerank != "touch":
        rank_all = _rank_all_with(_compile(SIGNATURES.rank, policy.rank))
    return (*addresses, _address_of(RANK_ALL, rank_all))


def _address_of(signature: Any, function: Callable[..., Any] | None) -> int:
    """Compile a function that the loop calls by address; None, which it never calls, has 0."""
    if function is None:
        return 0
    [code] = _compile(signature, function).overloads.values()
    address: int = code.library.get_pointer_to_function(code.fndesc.llvm_func_name)
    return address


@cache
def _compile(signature: Any, function: Callable[..., Any]) -> Any:
    # Code comes back from the disk only if its module can be imported, and a closure never does.
    kept = function.__module__.startswith("kvsim.") and function.__closure__ is None
    return njit(signature, cache=kept, **{**INNER, "no_rewrites": False})(function)


def _rank_all_with(rank: Callable[..., float]) -> Callable[..., None]:
    # A call through a pointer costs ten times the rank of most policies.
    def rank_all(state, cache, heap, now):  # type: ignore[no-untyped-def]
        nodes, leaves = cache.nodes, heap[0]
        kept = np.int64(0)
        for i in range(cache.counts[ENTRIES]):
            entry = leaves[i]
            block = nodes[entry.node]
            if block.stamp == entry.stamp and _leaf(block, cache.flat):
                entry.key = rank(state, cache, np.int64(entry.node), now)
                leaves[kept] = entry
                kept += 1
        cache.counts[ENTRIES] = kept
        _heapify(leaves, kept)

    return rank_all


@lru_cache(maxsize=1)
def _loop() -> Callable[..., None]:
    signature = types.void(CACHE_TYPE, STATE_TYPE, *[INDEX] * 9, RULES_TYPE, HEAP_TYPE)
    options = {**INNER, "no_cpython_wrapper": False}
    return njit(signature, cache=True, nogil=True, **options)(_replay)  # type: ignore[no-any-return]


def counted(
    policy: str, capacity: int, blocks: np.ndarray, tokens: np.ndarray, **flow: int
) -> Result:
    """Return the result of hits without a cap (int64[n] blocks and tokens)."""
    none = np.zeros_like(blocks)
    return Result(policy, capacity, blocks, tokens, none, none, **flow)


def cap_hits(trace: Trace, result: Result, switches: Switches) -> Result:
    """Apply the engine's hit cap, which vLLM and SGLang share: the last token is recomputed."""
    if switches.hit_cap is None:
        return result
    cap = np.maximum(trace.input_tokens - 1, 0) // trace.block_size
    blocks = np.minimum(result.hit_blocks, cap)
    tokens = np.where(result.hit_blocks > cap, cap * trace.block_size, result.hit_tokens)
    return replace(
        result,
        hit_blocks=blocks,
        hit_tokens=tokens,
        capped_blocks=result.hit_blocks - blocks,
        capped_tokens=result.hit_tokens - tokens,
    )


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
    counts = np.zeros(ENTRIES + QUEUES, dtype=np.int64)
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


def _replay(
    cache,
    state,
    rank,
    on_request,
    on_touch,
    on_remove,
    take,
    turn,
    rank_all,
    find,
    expire,
    rules,
    heap,
):
    # One function, with its parts inlined: a call that passes arrays costs more than its work.
    # Conditions are joined by & and |: every `and` is a branch more, which takes long to compile.
    nodes, runs, requests, counts = cache.nodes, cache.runs, cache.requests, cache.counts
    path, capacity, block_size = cache.path, cache.capacity, cache.block_size
    oldest = 0  # first request whose blocks may not have expired yet
    for now in range(len(requests)):
        request = requests[now]
        # 1. Expire.
        if expire:
            oldest = call_expire(expire, state, cache, heap, rank, on_remove, rules, oldest, now)
        # 2. Look up; 3. pin.
        levels = 0
        missing = 0
        node = np.int64(request.terminal)
        reached = node  # deepest node that the resident prefix reaches into
        while node >= 0:
            block = nodes[node]
            absent = block.length - block.resident
            path[levels] = node
            levels += 1
            block.pinned = now
            missing += absent
            if absent > 0:
                reached = node
            elif rules.set_hits & rules.pinning:
                request.hit_blocks += 1
                request.hit_tokens += block.tail_tokens
            node = np.int64(block.parent)
        leading = np.int64(0)  # blocks of the resident prefix
        if reached >= 0:
            block = nodes[reached]
            resident = np.int64(block.resident)
            leading = block.depth + resident
            if not rules.set_hits:
                request.hit_blocks = leading
                request.hit_tokens = block.tokens_above + resident * block_size
                if resident == block.length:
                    request.hit_tokens += block.tail_tokens - block_size
        if on_request:
            call_on_request(on_request, state, cache, now, leading)
        # With pins the whole path is one group. Without, each level is one, visited twice:
        # going up what is resident is touched, coming down what is absent is inserted.
        for visit in range(1 if rules.pinning else 2 * levels):
            first = 0
            last = levels
            if not rules.pinning:
                inserting = visit >= levels
                first = 2 * levels - 1 - visit if inserting else visit
                last = first + 1
                block = nodes[path[first]]
                missing = 1 - block.resident
                if inserting & (missing == 0) & rules.set_hits:
                    request.hit_blocks += 1
                    request.hit_tokens += block.tail_tokens
                skipped = (not inserting) & rules.deepest_only & (first > 0)
                if (inserting != (missing == 1)) | skipped:
                    continue
            # 4. Make room.
            fresh = True
            while missing > capacity - counts[USED]:
                if find:
                    victim = call_find(
                        find, state, cache, heap, rank, turn, rank_all, rules, fresh, now
                    )
                    fresh = False
                else:
                    victim = _next_leaf(nodes, counts, heap, 0, rules, now)
                if victim < 0:
                    break
                block = nodes[victim]
                blocks = np.int64(1)
                if rules.uniform:
                    run = block.resident - runs[block.run].start
                    blocks = min(missing - capacity + counts[USED], run)
                if take:
                    blocks = call_take(take, state, cache, victim, blocks, now)
                if blocks > 0:
                    _remove(nodes, runs, counts, block, blocks, EVICTED)
                    if on_remove:
                        call_on_remove(on_remove, state, cache, victim, blocks, now, False)
                if block.resident == 0:
                    victim = np.int64(block.parent)
                if victim >= 0:
                    _offer(cache, nodes, counts, heap, state, rank, rules, victim, now)
            # 5. Insert, root first, as many as fit.
            room = min(missing, capacity - counts[USED])
            level = last - 1
            while (room > 0) & (level >= first):
                node = path[level]
                block = nodes[node]
                blocks = min(room, block.length - block.resident)
                if blocks > 0:
                    _insert(nodes, runs, counts, block, blocks, now)
                    room -= blocks
                level -= 1
            # 6. Touch.
            start = first
            for level in range(first, last + 1):  # one more, which ends the last stretch
                skipped = level == last
                if not skipped:
                    block = nodes[path[level]]
                    skipped = rules.deepest_only & (level > 0) & (not _new(runs, block, now))
                if not skipped:
                    block.last = now
                    block.uses += 1
                else:
                    if (on_touch != 0) & (start < level):
                        call_on_touch(on_touch, state, cache, start, level, now)
                    start = level + 1
            # 7. Unpin.
            for level in range(first, last):
                node = path[level]
                if nodes[node].resident > 0:
                    _offer(cache, nodes, counts, heap, state, rank, rules, node, now)
                    if not rules.flat:
                        break  # the nodes above have a resident child
        for queue in range(rules.queues):
            if counts[ENTRIES + queue] > 2 * len(nodes) + 16:
                _drop_stale(nodes, rules.flat, heap, counts, queue)


def _find(state, cache, heap, rank, turn, rank_all, rules, fresh, now):
    """Return the victim, -1 for none, where it is not just the next leaf of one queue."""
    nodes, counts = cache.nodes, cache.counts
    if rules.rerank == 2 or (fresh and rules.rerank > counts[STEADY]):
        call_rank_all(rank_all, state, cache, heap, now)
    order = call_turn(turn, state, cache, now) if rules.turns else 0
    if rules.candidates > 0:
        return _best_of_oldest(state, cache, heap, rank, order, rules, now)
    victim = np.int64(-1)
    for position in range(rules.queues):
        if victim < 0:
            queue = order >> 2 * position & 3
            victim = _next_leaf(nodes, counts, heap, queue, rules, now)
    return victim


@njit(inline="always")
def _best_of_oldest(state, cache, heap, rank, order, rules, now):
    """Return the best of the k least recently used leaves, -1 if there is none."""
    nodes, counts = cache.nodes, cache.counts
    node = _next_leaf(nodes, counts, heap, 0, rules, now)
    best = node
    best_key = np.inf
    # The leaves drawn stand where the heap ended, the first one highest.
    end = counts[ENTRIES]
    drawn = 0
    while node >= 0:
        key = _in_turn(call_rank(rank, state, cache, node, now), order, rules)
        if key < best_key:  # the older one wins a tie
            best, best_key = node, key
        heap[0, end - drawn].node = node
        drawn += 1
        node = np.int64(-1)
        if drawn < rules.candidates:
            node = _next_leaf(nodes, counts, heap, 0, rules, now)
    for slot in range(end - drawn + 1, end + 1):
        node = np.int64(heap[0, slot].node)
        if node != best:
            counts[STAMP] += 1
            nodes[node].stamp = counts[STAMP]
            _push(heap, counts, 0, 0.0, _recency(nodes[node], rules), counts[STAMP], node)
    return best


def _expire(state, cache, heap, rank, on_remove, rules, oldest, now):
    """Take out what requests from `oldest` on left that has expired; return the next `oldest`."""
    nodes, runs, requests, counts = cache.nodes, cache.runs, cache.requests, cache.counts
    while requests[now].arrival - requests[oldest].arrival > rules.ttl:
        node = np.int64(requests[oldest].terminal)
        while node >= 0:
            block = nodes[node]
            above = np.int64(block.parent)
            if block.resident > 0 and block.last == oldest:
                blocks = np.int64(block.resident)
                _remove(nodes, runs, counts, block, blocks, EXPIRED)
                if on_remove:
                    call_on_remove(on_remove, state, cache, node, blocks, now, True)
                if above >= 0:
                    _offer(cache, nodes, counts, heap, state, rank, rules, above, now)
            node = above
        oldest += 1
    return oldest


@njit(inline="always")
def _remove(nodes, runs, counts, block, blocks, cause):
    """Take blocks off a node's end, and the runs that they made up."""
    block.resident -= blocks
    counts[USED] -= blocks
    counts[cause] += blocks
    run = np.int64(block.run)
    while run >= 0 and runs[run].start >= block.resident:
        below = np.int64(runs[run].below)
        runs[run].below = counts[FREE_RUN]
        counts[FREE_RUN] = run
        run = below
    block.run = run
    if block.resident == 0 and block.parent >= 0:
        nodes[block.parent].children -= 1


@njit(inline="always")
def _insert(nodes, runs, counts, block, blocks, now):
    """Append absent blocks to a node's resident ones as a new run."""
    free = counts[FREE_RUN]
    if free < 0:
        free = counts[RUNS]
        counts[RUNS] += 1
    else:
        counts[FREE_RUN] = runs[free].below
    run = runs[free]
    run.start = block.resident
    run.birth = now
    run.uses = block.uses
    run.below = block.run
    block.run = free
    if block.resident == 0 and block.parent >= 0:
        nodes[block.parent].children += 1
    block.resident += blocks
    counts[USED] += blocks
    counts[INSERTED] += blocks


@njit(inline="always")
def _new(runs, block, now):
    return (block.run >= 0) & (runs[block.run].birth == now)


@njit(inline="always")
def _leaf(block, flat):
    return (block.resident > 0) & (flat | (block.children == 0))


@njit(inline="always")
def _next_leaf(nodes, counts, heap, queue, rules, now):
    """Take entries off a queue up to the first evictable leaf; return it, -1 for none."""
    leaf = np.int64(-1)
    while (counts[ENTRIES + queue] > 0) & (leaf < 0):
        node, stamp = _pop(heap, counts, queue)
        block = nodes[node]
        pinned = rules.pinning & (block.pinned == now)
        if (block.stamp == stamp) & (not pinned) & _leaf(block, rules.flat):
            leaf = node
    return leaf


@njit(inline="always")
def _recency(block, rules):
    """Return when a node's deepest resident block was used: request, then depth."""
    depth = np.int64(block.depth) + block.resident - 1
    return (np.int64(block.last) << 31) | (depth ^ rules.turned)


@njit(inline="always")
def _offer(cache, nodes, counts, heap, state, rank, rules, node, now):
    """Enter a node into the heap if it is a leaf; its older entry becomes stale."""
    block = nodes[node]
    if _leaf(block, rules.flat):
        stamp = counts[STAMP] + 1
        counts[STAMP] = stamp
        block.stamp = stamp
        key = 0.0
        if rules.ranks:
            key = call_rank(rank, state, cache, node, now)
        queue = np.int64(key / QUEUE) if rules.queues > 1 else 0
        _push(heap, counts, queue, key, _recency(block, rules), stamp, node)


@part
def _push(heap, counts, queue, key, recency, stamp, node):
    """Add an entry; the smallest (key, recency) of a queue is on top."""
    entries = heap[queue]
    i = counts[ENTRIES + queue]
    counts[ENTRIES + queue] += 1
    while i > 0:
        up = (i - 1) >> 1
        above = entries[up]
        if (key > above.key) | ((key == above.key) & (recency >= above.recency)):
            break
        entries[i] = above
        i = up
    _fill(entries[i], key, recency, stamp, node)


@njit(inline="always")
def _fill(entry, key, recency, stamp, node):
    entry.key = key
    entry.recency = recency
    entry.stamp = stamp
    entry.node = node


@part
def _pop(heap, counts, queue):
    """Take the top entry of a queue off; return its (node, stamp)."""
    entries = heap[queue]
    node, stamp = np.int64(entries[0].node), entries[0].stamp
    counts[ENTRIES + queue] -= 1
    last = counts[ENTRIES + queue]
    _sift_down(entries, np.int64(0), last, last)
    return node, stamp


@part
def _sift_down(heap, i, moving, size):
    """Place the entry at `moving` at `i` or below, in a heap of `size` entries."""
    entry = heap[moving]
    key, recency, stamp, node = entry.key, entry.recency, entry.stamp, entry.node
    while True:
        child = 2 * i + 1
        if child >= size:
            break
        least = heap[child]
        if child + 1 < size:
            other = heap[child + 1]
            if (other.key < least.key) | (
                (other.key == least.key) & (other.recency < least.recency)
            ):
                child, least = child + 1, other
        if (least.key > key) | ((least.key == key) & (least.recency >= recency)):
            break
        heap[i] = least
        i = child
    _fill(heap[i], key, recency, stamp, node)


@part
def _drop_stale(nodes, flat, heap, counts, queue):
    """Take the entries out of a queue that are not a leaf's newest."""
    entries, size = heap[queue], counts[ENTRIES + queue]
    counts[ENTRIES + queue] = 0
    for i in range(size):
        entry = entries[i]
        block = nodes[entry.node]
        if (block.stamp == entry.stamp) & _leaf(block, flat):
            _push(heap, counts, queue, entry.key, entry.recency, entry.stamp, np.int64(entry.node))


@part
def _heapify(heap, size):
    for i in range(size // 2 - 1, -1, -1):
        _sift_down(heap, i, i, size)


@part
def _in_turn(key, order, rules):
    """Return a rank that compares as queues take turns."""
    if not rules.turns:
        return key
    queue = np.int64(key / QUEUE)
    position = 0
    while order >> 2 * position & 3 != queue:
        position += 1
    return key + (position - queue) * QUEUE
