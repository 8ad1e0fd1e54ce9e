"""Random small traces that reach the corners, and what they become in both simulators."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from typing import Any

import numpy as np
from hypothesis import strategies as st

from kvsim.cache.engine import Switches
from kvsim.cache.reference import Policy, Request, simulate
from kvsim.traces.readers.builder import TraceBuilder
from kvsim.traces.trace import RECORDED, Trace

BLOCK_SIZE = 4  # tokens
# Ids from here on are partial tails and say how many tokens they hold, so that no two
# sightings of a block can disagree.
PARTIAL = 1_000


@dataclass(frozen=True)
class Case:
    """A trace, a cache, and how the cache works."""

    requests: tuple[Request, ...]
    capacity: int
    ttl: float | None
    switches: Switches
    seed: int

    @property
    def trace(self) -> Trace:
        return to_trace(self.requests)

    @property
    def engine(self) -> dict[str, Any]:
        """Arguments of `kvsim.cache.engine.replay` after trace and policy."""
        return {
            "capacity": self.capacity,
            "ttl": self.ttl,
            "switches": self.switches,
            "seed": self.seed,
        }

    @property
    def reference(self) -> dict[str, Any]:
        """Arguments of `kvsim.cache.reference.simulate` besides trace and policy."""
        ttl = {} if self.ttl is None else {"ttl": self.ttl}
        return {"block_size": BLOCK_SIZE, "capacity": self.capacity, **ttl, **asdict(self.switches)}

    def under(self, **switches: Any) -> "Case":
        """Return the case with some switches set."""
        return replace(self, switches=replace(self.switches, **switches))


def to_trace(requests: Sequence[Request], block_size: int = BLOCK_SIZE) -> Trace:
    """Return requests, which are in processing order, as a `Trace`."""
    builder = TraceBuilder(block_size)
    namespaces: dict[Any, int] = {}
    for number, request in enumerate(requests):
        ids = np.array(request.chain, dtype=np.int64)
        terminal = builder.chains(
            ids,
            np.array([len(ids)]),
            [min(request.input_tokens, len(ids) * block_size)],
            [f"request {number}"],
            namespace=namespaces.setdefault(request.namespace, len(namespaces)),
        )
        builder.requests(
            arrival=[request.arrival],
            session=[request.session],
            input_tokens=[request.input_tokens],
            output_tokens=[request.output_tokens],
            service=[request.service],
            subagent=[request.subagent],
            terminal=terminal,
        )
    return replace(builder.finish("random", ""), clock=RECORDED)


# A request is drawn as three bytes, because a draw a field would take most of the tests' time.
STEP_BYTES = 3
FIELDS = {
    "gap": (0.0, 0.0, 0.0, 1.0, 2.0, 7.0),  # seconds since the previous request
    "back": range(8),  # how many requests of the namespace back to go on from
    "cut": (0, 0, 0, 0, 0, 1, 2, 9, 9, 9),  # blocks to cut off there
    "extra": (0, 0, 0, 2, 3, 4),  # blocks to append
    "name": (1, 2, 3),  # their id
    "session": range(3),
    "tail": (0, 0, 0, 0, 1, 3),  # tokens of a partial tail
    "has_block": (False, True),  # whether the tail has a block
}
# Few requests, or a cache of none or all blocks, show little, so most examples are between.
LENGTHS = (0, 1, 3, 8, *8 * (16, 20, 24))
CAPACITIES = (0, 1, 2, 3, *2 * (4, 5, 6, 7, 8), 10, 12, 16)


def step_of(code: bytes) -> dict[str, Any]:
    """Return the `FIELDS` that three bytes stand for; zeros are the simplest request."""
    number = int.from_bytes(code, "little")
    step = {}
    for name, values in FIELDS.items():
        number, digit = divmod(number, len(values))
        step[name] = values[digit]
    return step


@st.composite
def traces(draw: st.DrawFn, most: int = 24) -> tuple[Request, ...]:
    """Draw up to `most` requests, each going on from an earlier one, cut somewhere.

    A request appends up to four blocks and sometimes a partial tail, or leaves
    tokens without a block at its end.
    """
    size = STEP_BYTES * min(most, draw(st.sampled_from(LENGTHS)))
    code = draw(st.binary(min_size=size, max_size=size))
    local, sessions = draw(st.booleans()), draw(st.booleans())
    requests: list[Request] = []
    for at in range(0, size, STEP_BYTES):
        step = step_of(code[at : at + STEP_BYTES])
        requests.append(follow(requests, step, local and sessions, sessions))
    return tuple(requests)


def follow(
    requests: Sequence[Request], step: dict[str, Any], local: bool, sessions: bool
) -> Request:
    """Return the request that a step makes after `requests`."""
    namespace = step["session"] if local else None
    own = [request.chain for request in requests if request.namespace == namespace]
    base = own[-1 - step["back"] % len(own)] if own else ()
    chain = base[: max(0, len(base) - step["cut"])]
    if step["extra"] or step["tail"]:
        chain = tuple(name for name in chain if name < PARTIAL) + (step["name"],) * step["extra"]
    tokens = len(chain) * BLOCK_SIZE
    if chain and chain[-1] >= PARTIAL:
        tokens += chain[-1] - PARTIAL - BLOCK_SIZE
    elif step["tail"]:
        tokens += step["tail"]
        chain += (PARTIAL + step["tail"],) if step["has_block"] else ()
    return Request(
        arrival=step["gap"] + (requests[-1].arrival if requests else 0.0),
        chain=chain,
        input_tokens=tokens,
        namespace=namespace,
        session=step["session"] if sessions else -1,
        output_tokens=3 * step["extra"],
        service=float(step["cut"]),
        subagent=bool(step["back"] % 2),
    )


def combinations(**values: Sequence[Any]) -> st.SearchStrategy[Switches]:
    """Draw switches of the given values, the others at their defaults; in one draw, for speed."""
    rows = product(*values.values())
    return st.sampled_from([Switches(**dict(zip(values, row, strict=True))) for row in rows])


EVICTION = ("leaf", "flat")
ORDER = ("deepest-oldest", "root-oldest")
CAP = (None, "engine")
SAMPLE = (0, 0, 0, 0, 0, 1, 2, 3)
every_switch = combinations(
    eviction=EVICTION,
    pinning=(True, False),
    touch_order=ORDER,
    hits=("prefix", "set"),
    hit_cap=CAP,
    touch=("chain", "chain", "deepest"),
    candidates=SAMPLE,
)
# The switches under which the engine handles whole nodes of the radix tree at once.
node_switches = combinations(touch_order=ORDER, hit_cap=CAP, candidates=SAMPLE)
any_switches = st.one_of(node_switches, node_switches, every_switch)
proper_switches = combinations(eviction=EVICTION, pinning=(True, False), touch_order=ORDER)
any_traces = traces()
ttls = st.sampled_from([*8 * [None], 0.0, 1.0, 3.0, 14.0])
capacities = st.sampled_from(CAPACITIES)


def cases(
    trace: st.SearchStrategy[tuple[Request, ...]] = any_traces,
    capacity: st.SearchStrategy[int] = capacities,
    ttl: st.SearchStrategy[float | None] = ttls,
    switches: st.SearchStrategy[Switches] = any_switches,
) -> st.SearchStrategy[Case]:
    """Draw a trace together with a cache."""
    return st.builds(Case, trace, capacity, ttl, switches, st.integers(0, 3))


SITUATIONS = {
    "no requests",
    "empty chain",
    "capacity 0",
    "capacity 1",
    "chain longer than the cache",
    "equal times",
    "partial tail",
    "partial tail hit",
    "tokens without a block",
    "several sessions",
    "the same id in two namespaces",
    "one id twice in a chain",
    "node of three blocks or more partly evicted",
    "partly evicted node inserted again",
    "expired by the TTL",
    "touched exactly TTL ago",
    "evicted within the own chain",
    "eviction",
    "hit cap applies",
}


class Witness(Policy):
    """LRU that notes which situations a replay went through."""

    def __init__(self, case: Case) -> None:
        self.seen: set[str] = set()
        trace = case.trace
        terminal, parent = trace.terminal, trace.tree.parent
        self.nodes = [path(int(node), parent, trace.tree.length) for node in terminal]
        self.head: dict[Any, set[Any]] = {}

    def on_request(self, chain: Sequence[Any], hits: int) -> None:
        self.chain = chain
        cache = self.cache
        time = cache.requests[cache.now].arrival
        for block, node in zip(chain, self.nodes[cache.now], strict=True):
            self.head.setdefault(node, set()).add(block)
            if block in cache.resident and cache.requests[block.last].arrival + cache.ttl == time:
                self.seen.add("touched exactly TTL ago")
        if hits == len(chain) > 0 and chain[-1].tokens < BLOCK_SIZE:
            self.seen.add("partial tail hit")
        partly = {
            node
            for node, blocks in self.head.items()
            if len(blocks) >= 3 and 0 < len(blocks & cache.resident) < len(blocks)
        }
        if partly and cache.evicted:
            self.seen.add("node of three blocks or more partly evicted")
            if partly.intersection(self.nodes[cache.now]):
                self.seen.add("partly evicted node inserted again")

    def on_remove(self, block: Any, expired: bool) -> None:
        self.seen.add("expired by the TTL" if expired else "eviction")
        if not expired and block in self.chain:
            self.seen.add("evicted within the own chain")


def path(node: int, parent: np.ndarray, length: np.ndarray) -> list[int]:
    """Return the node of each block of the chain that ends in `node`, root first."""
    nodes: list[int] = []
    while node >= 0:
        nodes = [node] * int(length[node]) + nodes
        node = int(parent[node])
    return nodes


def situations(case: Case) -> set[str]:
    """Return which of `SITUATIONS` a case is, or goes through under LRU."""
    witness = Witness(case)
    counts, _ = simulate(case.requests, policy=witness, **case.reference)
    requests = case.requests
    chains = [request.chain for request in requests]
    ids: dict[Any, set[Any]] = {}
    for request in requests:
        ids.setdefault(request.namespace, set()).update(request.chain)
    spaces = list(ids.values())
    facts = {
        "no requests": not requests,
        "empty chain": () in chains,
        "capacity 0": case.capacity == 0,
        "capacity 1": case.capacity == 1,
        "chain longer than the cache": any(len(chain) > case.capacity > 0 for chain in chains),
        "equal times": len({request.arrival for request in requests}) < len(requests),
        "partial tail": any(chain and chain[-1] > PARTIAL for chain in chains),
        "tokens without a block": any(count.unblocked_tokens for count in counts),
        "several sessions": len({request.session for request in requests}) > 1,
        "the same id in two namespaces": any(a & b for a in spaces for b in spaces if a is not b),
        "one id twice in a chain": any(len(set(chain)) < len(chain) for chain in chains),
        "hit cap applies": any(count.capped_blocks for count in counts),
    }
    return witness.seen | {name for name, true in facts.items() if true}
