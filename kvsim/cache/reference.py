"""The reference simulator: what a KV prefix cache does, one block at a time.

It says what is right, and `kvsim.cache.engine` must agree with it in every count.
Nothing here is fast, and nothing beyond the standard library is needed.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from math import inf, nan
from typing import Any, Literal, NamedTuple


class Request(NamedTuple):
    """A request; a trace is a list of them in processing order."""

    arrival: float  # seconds
    chain: tuple[Hashable, ...]  # block ids, root first
    input_tokens: int
    namespace: Hashable = None  # chains of two namespaces share no block
    session: int = -1
    output_tokens: int = 0
    service: float = nan  # seconds
    subagent: bool = False


@dataclass(eq=False)
class Block:
    """A block that some request asked for, resident or not; it is known by (parent, id)."""

    parent: "Block | None"
    depth: int  # blocks above it
    tokens: int
    first: int  # request that asked for it first
    inserted: int = -1  # request that inserted it last
    last: int = -1  # request that touched it last


class Policy:
    """Ranks blocks for eviction. This one ranks all alike, which makes it LRU."""

    cache: "Cache"  # what the policy may look at; the cache sets it

    def rank(self, block: Block) -> Any:
        """Return the block's rank; the smallest goes first, the least recently used of equals."""
        return 0

    def on_request(self, chain: Sequence[Block], hits: int) -> None:
        """Learn of a request and the blocks it found, before room is made for it."""

    def on_insert(self, block: Block) -> None:
        """Learn that a block was inserted; its touch follows."""

    def on_touch(self, block: Block) -> None:
        """Learn that a block was used."""

    def spares(self, block: Block) -> bool:
        """Say whether a block about to go stays, its rank or this answer having changed."""
        return False

    def on_remove(self, block: Block, expired: bool) -> None:
        """Learn that a block was evicted, or has expired."""


@dataclass(eq=False)
class Cache:
    """The resident blocks, and how a request changes which they are."""

    policy: Policy
    requests: Sequence[Request]
    capacity: int  # blocks
    ttl: float = inf  # seconds
    eviction: Literal["leaf", "flat"] = "leaf"
    pinning: bool = True
    touch_order: Literal["deepest-oldest", "root-oldest"] = "deepest-oldest"
    hits: Literal["prefix", "set"] = "prefix"
    touch: Literal["chain", "deepest"] = "chain"  # deepest: what is inserted, and the last block
    candidates: int = 0  # rank only so many of the least recently used; 0 ranks all
    now: int = -1  # number of the request in process
    resident: set[Block] = field(default_factory=set)
    inserted: int = 0
    evicted: int = 0
    expired: int = 0

    def __post_init__(self) -> None:
        self.policy.cache = self

    def serve(self, now: int, chain: Sequence[Block]) -> list[Block]:
        """Process one request and return the blocks that it hit."""
        self.now = now
        self._expire()
        prefix = list(takewhile(self.resident.__contains__, chain))
        self.policy.on_request(chain, len(prefix))
        found = self._store_pinned(chain) if self.pinning else self._store_in_turn(chain)
        return prefix if self.hits == "prefix" else found

    def _expire(self) -> None:
        """Remove what was last touched more than `ttl` ago, oldest first, deepest first."""
        time = self.requests[self.now].arrival
        for block in sorted(self.resident, key=lambda block: (block.last, -block.depth)):
            if time - self.requests[block.last].arrival > self.ttl:
                self._remove(block, expired=True)

    def _store_pinned(self, chain: Sequence[Block]) -> list[Block]:
        """Make room without evicting the chain, insert what fits of it, touch all of it.

        Returns the blocks that were resident before.
        """
        found = [block for block in chain if block in self.resident]
        missing = [block for block in chain if block not in self.resident]
        while self._free() < len(missing) and (victim := self._victim(pinned=chain)):
            self._remove(victim)
        for block in missing[: self._free()]:
            self._insert(block)
        for block in reversed(chain):
            if self.touch == "chain" or block.inserted == self.now or block is chain[-1]:
                self._touch(block)
        return found

    def _store_in_turn(self, chain: Sequence[Block]) -> list[Block]:
        """Touch what is resident, then insert block by block; nothing is safe from eviction.

        Returns the blocks that were resident when their turn came.
        """
        for block in reversed(chain):
            if block in self.resident and (self.touch == "chain" or block is chain[-1]):
                self._touch(block)
        found = []
        for block in chain:
            if block in self.resident:
                found.append(block)
                continue
            if not self._free() and (victim := self._victim()):
                self._remove(victim)
            if self._free():  # never in a cache of no blocks
                self._insert(block)
                self._touch(block)
        return found

    def _free(self) -> int:
        return self.capacity - len(self.resident)

    def _victim(self, pinned: Sequence[Block] = ()) -> Block | None:
        """Return the evictable block that the policy ranks first, if there is one."""
        evictable = self.resident.difference(pinned)
        if self.eviction == "leaf":
            evictable -= {block.parent for block in self.resident}
        candidates = sorted(evictable, key=self._recency)[: self.candidates or None]
        # Of equal ranks, min() takes the one that comes first: the least recently used.
        while victim := min(candidates, key=self.policy.rank, default=None):
            if not self.policy.spares(victim):
                break
        return victim

    def _recency(self, block: Block) -> tuple[int, int]:
        """Order blocks by last use; a request touches all its blocks, which depth then orders."""
        return block.last, block.depth if self.touch_order == "root-oldest" else -block.depth

    def _insert(self, block: Block) -> None:
        self.resident.add(block)
        self.inserted += 1
        block.inserted = self.now
        self.policy.on_insert(block)

    def _touch(self, block: Block) -> None:
        block.last = self.now
        self.policy.on_touch(block)

    def _remove(self, block: Block, expired: bool = False) -> None:
        self.resident.remove(block)
        self.expired += expired
        self.evicted += not expired
        self.policy.on_remove(block, expired)


class Count(NamedTuple):
    """What became of one request's blocks and tokens."""

    hit_blocks: int
    hit_tokens: int
    capped_blocks: int  # hits that the hit cap does not count
    capped_tokens: int
    compulsory_blocks: int  # never asked for before
    compulsory_tokens: int
    recompute_blocks: int  # missed, and asked for before
    recompute_tokens: int
    unblocked_tokens: int  # input that no block covers


def simulate(
    requests: Sequence[Request],
    block_size: int,
    capacity: int,
    policy: Policy,
    *,
    hit_cap: Literal["engine"] | None = None,
    **switches: Any,
) -> tuple[list[Count], Cache]:
    """Replay requests; return what became of each, and the cache as it is left.

    Parameters
    ----------
    requests : sequence of Request
        In processing order.
    block_size : int
        Tokens of a full block.
    capacity : int
        Blocks the cache holds.
    policy : Policy
        Ranks the evictable blocks.
    hit_cap : {None, "engine"}
        Count at most ``input_tokens - 1`` tokens of hits, floored to a block.
    **switches
        `ttl` (seconds) and the other switches, as `Cache` takes them.
    """
    cache = Cache(policy, requests, capacity, **switches)
    known: dict[tuple[Hashable, Hashable], Block] = {}
    counts = []
    for now, request in enumerate(requests):
        chain = blocks_of(request, now, block_size, known)
        hits = cache.serve(now, chain)
        limit = max(request.input_tokens - 1, 0) // block_size if hit_cap else len(hits)
        new = [block for block in chain if block.first == now]
        counts.append(_count(request, chain, hits, new, limit, block_size))
    return counts, cache


def blocks_of(
    request: Request, now: int, block_size: int, known: dict[tuple[Hashable, Hashable], Block]
) -> list[Block]:
    """Return the blocks of a request's chain, root first, entering new ones into `known`.

    Raises
    ------
    ValueError
        If a block holds other tokens than at its first sighting.
    """
    chain: list[Block] = []
    for depth, name in enumerate(request.chain):
        parent = chain[-1] if chain else None
        tokens = min(block_size, request.input_tokens - depth * block_size)
        key = (parent if parent else request.namespace, name)
        block = known.setdefault(key, Block(parent, depth, tokens, first=now))
        if block.tokens != tokens:
            raise ValueError(
                f"request {now}: block {depth} has {tokens} tokens, not {block.tokens}"
            )
        chain.append(block)
    return chain


def _count(
    request: Request,
    chain: Sequence[Block],
    hits: Sequence[Block],
    new: Sequence[Block],
    limit: int,
    block_size: int,
) -> Count:
    chain_tokens, hit_tokens, new_tokens = (
        sum(block.tokens for block in blocks) for blocks in (chain, hits, new)
    )
    counted = min(len(hits), limit)
    # Below the limit all blocks are full: only the last of a chain may be partial.
    counted_tokens = hit_tokens if counted == len(hits) else counted * block_size
    return Count(
        hit_blocks=counted,
        hit_tokens=counted_tokens,
        capped_blocks=len(hits) - counted,
        capped_tokens=hit_tokens - counted_tokens,
        compulsory_blocks=len(new),
        compulsory_tokens=new_tokens,
        recompute_blocks=len(chain) - len(hits) - len(new),
        recompute_tokens=chain_tokens - hit_tokens - new_tokens,
        unblocked_tokens=request.input_tokens - chain_tokens,
    )
