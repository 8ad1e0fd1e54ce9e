"""Slow, obvious twins of the registered policies, and of the optimum.

A new policy adds a class here and a line to `NAIVE`; the twin is written from
the policy's prose, not from its compiled form.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Sequence
from functools import cache
from itertools import combinations
from math import inf
from typing import Any

from kvsim.cache.reference import Block, Policy, Request
from tests.naive_classics import CLASSIC_VARIANTS, CLASSICS, mix
from tests.naive_hazard import HAZARD_VARIANTS, HAZARDS
from tests.naive_published import PUBLISHED, PUBLISHED_VARIANTS

Identity = tuple[Hashable, tuple[Hashable, ...]]  # a block: its namespace and chain down to it


def identities(request: Request) -> list[Identity]:
    """Return the blocks of a request, root first."""
    chain = request.chain
    return [(request.namespace, chain[: depth + 1]) for depth in range(len(chain))]


def uses_of(requests: Sequence[Request]) -> dict[Identity, list[int]]:
    """Return which requests ask for each block, ascending."""
    uses = defaultdict(list)
    for number, request in enumerate(requests):
        for block in identities(request):
            uses[block].append(number)
    return uses


def next_use(uses: Sequence[int], now: int) -> float:
    """Return the first use after request `now`."""
    return next((number for number in uses if number > now), inf)


class FIFO(Policy):
    """The order of insertion."""

    def __init__(self) -> None:
        self.order: dict[Block, int] = {}
        self.insertions = 0

    def on_insert(self, block: Block) -> None:
        self.insertions += 1
        self.order[block] = self.insertions

    def rank(self, block: Block) -> int:
        return self.order[block]


class LFU(Policy):
    """The number of uses, since insertion or for ever."""

    def __init__(self, perfect: bool = False) -> None:
        self.perfect = perfect
        self.uses: Counter[Block] = Counter()

    def on_touch(self, block: Block) -> None:
        self.uses[block] += 1

    def on_remove(self, block: Block, expired: bool) -> None:
        if not self.perfect:
            del self.uses[block]

    def on_insert(self, block: Block) -> None:
        # A touch of a block that did not fit counts only for ever.
        if not self.perfect:
            self.uses[block] = 0

    def rank(self, block: Block) -> int:
        return self.uses[block]


class Random(Policy):
    """A hash of (seed, eviction number, inserting request, depth)."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def rank(self, block: Block) -> int:
        z = mix(self.seed, self.cache.evicted + 1)
        z = mix(z, block.inserted + 1)
        return mix(z, block.depth + 1) >> 11


class Belady(Policy):
    """The next use, known when a block is touched; the farthest goes first."""

    def __init__(self, requests: Sequence[Request]) -> None:
        self.uses = uses_of(requests)
        self.next: dict[Block, float] = {}

    def on_touch(self, block: Block) -> None:
        now = self.cache.now
        identity = identities(self.cache.requests[now])[block.depth]
        self.next[block] = next_use(self.uses[identity], now)

    def rank(self, block: Block) -> float:
        return -self.next[block]


NAIVE: dict[str, Callable[..., Policy]] = {
    "lru": lambda requests, seed: Policy(),
    "fifo": lambda requests, seed: FIFO(),
    "lfu": lambda requests, seed, perfect=False: LFU(perfect),
    "random": lambda requests, seed: Random(seed),
    "belady": lambda requests, seed: Belady(requests),
    **CLASSICS,
    **HAZARDS,
    **PUBLISHED,
}

# Parameters worth testing besides the defaults.
VARIANTS: dict[str, list[dict[str, Any]]] = {
    "lfu": [{"perfect": True}],
    **CLASSIC_VARIANTS,
    **HAZARD_VARIANTS,
    **PUBLISHED_VARIANTS,
}


def optimum(requests: Sequence[Request], capacity: int) -> list[int]:
    """Return the hit blocks a request of Belady with bypass.

    After each request the blocks whose next use is nearest stay, the deepest
    going first among ties.
    """
    uses = uses_of(requests)
    resident: set[Identity] = set()
    hits = []
    for now, request in enumerate(requests):
        chain = identities(request)
        hits.append(prefix_hits(chain, resident))
        ordered = sorted(
            resident.union(chain), key=lambda block: (next_use(uses[block], now), len(block[1]))
        )
        resident = set(ordered[:capacity])
    return hits


def exhaustive(requests: Sequence[Request], capacity: int, first: int = 0) -> int:
    """Return the most hit blocks from request `first` on of any choice of contents; exponential."""
    chains = [identities(request) for request in requests]

    @cache
    def best(now: int, resident: frozenset[Identity]) -> int:
        if now == len(chains):
            return 0
        at_hand = resident.union(chains[now])
        size = min(capacity, len(at_hand))
        later = max(best(now + 1, frozenset(kept)) for kept in combinations(at_hand, size))
        return later + (prefix_hits(chains[now], resident) if now >= first else 0)

    return best(0, frozenset())


def prefix_hits(chain: Sequence[Identity], resident: frozenset[Identity] | set[Identity]) -> int:
    """Return the number of leading blocks of `chain` in `resident`."""
    return next((i for i, block in enumerate(chain) if block not in resident), len(chain))
