"""What a policy author needs: the records a policy sees, its state, and `Policy`."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np

from kvsim.cache.result import Result
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


def order_of(*queues: int) -> int:
    """Return the order of queues as `turn` gives it, the first one's number in the lowest bits."""
    return sum(queue << 2 * position for position, queue in enumerate(queues))


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
    replays: Callable[..., Result] | None = None
    needs: tuple[str, ...] = ()
    parameters: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not (isinstance(self.name, str) and self.name):
            raise TraceError(f"policy name is {self.name!r}; it must be a text")
        for what, value, right in (
            ("rerank", self.rerank, tuple(RERANK)),
            ("hit_cap", self.hit_cap, (None, "engine")),
        ):
            if value not in right:
                allowed = " or ".join(map(repr, right))
                raise TraceError(f"policy {self.name}: {what} is {value!r}; it must be {allowed}")
