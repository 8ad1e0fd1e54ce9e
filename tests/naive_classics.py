"""Twins of the classic policies and of the engines', block by block; `tests.naive` merges them."""

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from math import floor, inf, isnan, log2
from typing import Any

from kvsim.reference import Block, Policy


class MRU(Policy):
    """The last use, backwards."""

    def rank(self, block: Block) -> int:
        return -block.last


class FILO(Policy):
    """The order of insertion, backwards."""

    def rank(self, block: Block) -> tuple[int, int]:
        return -block.inserted, -block.depth


class Depth(Policy):
    """The depth, to the octave."""

    def rank(self, block: Block) -> int:
        return -floor(log2(block.depth + 1))


class LRUK(Policy):
    """The K-th most recent use."""

    def __init__(self, k: int = 2) -> None:
        self.k = k
        self.uses: dict[Block, list[int]] = defaultdict(list)

    def on_touch(self, block: Block) -> None:
        self.uses[block].append(self.cache.now)

    def rank(self, block: Block) -> int:
        uses = self.uses[block]
        return uses[-self.k] if len(uses) >= self.k else -1


class LIRS(Policy):
    """The greater of the last reuse gap and the time since the last use."""

    def __init__(self) -> None:
        self.uses: dict[Block, list[int]] = defaultdict(list)

    def on_touch(self, block: Block) -> None:
        self.uses[block].append(self.cache.now)

    def rank(self, block: Block) -> float:
        uses = self.uses[block]
        gap = uses[-1] - uses[-2] if len(uses) > 1 else inf
        return -max(gap, self.cache.now - uses[-1])


class InCache(Policy):
    """Counts uses since insertion."""

    def __init__(self) -> None:
        self.uses: Counter[Block] = Counter()

    def on_insert(self, block: Block) -> None:
        self.uses[block] = 0

    def on_touch(self, block: Block) -> None:
        self.uses[block] += 1


class LFUDA(InCache):
    """Uses since insertion on top of the age at the last use; victims raise the age."""

    def __init__(self) -> None:
        super().__init__()
        self.age = 0.0
        self.aged: dict[Block, float] = {}

    def on_touch(self, block: Block) -> None:
        super().on_touch(block)
        self.aged[block] = self.age

    def worth(self, block: Block) -> float:
        return 1

    def rank(self, block: Block) -> float:
        return self.aged[block] + self.uses[block] * self.worth(block)

    def on_remove(self, block: Block, expired: bool) -> None:
        if not expired:
            self.age = max(self.age, self.rank(block))


class GDSF(LFUDA):
    """LFU-DA with uses weighed by the cost of recomputing the block."""

    def __init__(self, knee: float = 50_000.0) -> None:
        super().__init__()
        self.knee = knee

    def worth(self, block: Block) -> float:
        above, parent = 0, block.parent
        while parent:
            above += parent.tokens
            parent = parent.parent
        return block.tokens * (1.0 + above / self.knee)


class Hyperbolic(InCache):
    """Uses since insertion over time since insertion."""

    def rank(self, block: Block) -> float:
        return self.uses[block] / (self.cache.now - block.inserted + 1)


class LHD(Policy):
    """Hit densities of (class, age), learnt from what became of blocks."""

    def __init__(self) -> None:
        self.uses: Counter[Block] = Counter()
        self.touched: dict[Block, int] = {}
        self.new: set[Block] = set()
        self.events = {kind: Counter() for kind in ("hits", "evictions")}
        self.recent = {kind: Counter() for kind in ("hits", "evictions")}
        self.density: dict[tuple[int, int], float] = {}

    def bin(self, block: Block) -> tuple[int, int]:
        """Return the class and the first age of the bin."""
        age = self.cache.now - self.touched[block]
        width = 1
        while age // width > 7:
            width *= 2
        return min(self.uses[block], 4), age // width * width

    def rank(self, block: Block) -> float:
        return self.density.get(self.bin(block), 0.0)

    def on_request(self, chain: Sequence[Block], hits: int) -> None:
        if self.cache.now % 256:
            return
        for kind, recent in self.recent.items():
            events = self.events[kind]
            for place in events | recent:
                events[place] = 0.9 * events[place] + recent[place]
            recent.clear()
        bins = [*range(8), *(octave * step // 4 for octave in POWERS for step in range(4, 8))]
        for group in range(1, 5):
            hit = event = lifetime = 0.0
            following = 2 * bins[-1]
            for age in reversed(bins):
                hit += self.events["hits"][group, age]
                event += self.events["hits"][group, age] + self.events["evictions"][group, age]
                lifetime += event * (following - age)
                self.density[group, age] = hit / lifetime if lifetime else 0.0
                following = age

    def on_insert(self, block: Block) -> None:
        self.new.add(block)

    def on_touch(self, block: Block) -> None:
        if block in self.cache.resident and block not in self.new:
            self.recent["hits"][self.bin(block)] += 1
        self.new.discard(block)
        self.uses[block] += 1
        self.touched[block] = self.cache.now

    def on_remove(self, block: Block, expired: bool) -> None:
        self.recent["evictions"][self.bin(block)] += 1


POWERS = [2**exponent for exponent in range(3, 33)]


class VLLM(Policy):
    """The time at which the last user of a block ends."""

    def __init__(self) -> None:
        self.release: dict[Block, float] = defaultdict(float)

    def on_touch(self, block: Block) -> None:
        request = self.cache.requests[self.cache.now]
        end = request.arrival + (0 if isnan(request.service) else request.service)
        self.release[block] = max(self.release[block], end)

    def rank(self, block: Block) -> float:
        return self.release[block]


CLASSICS: dict[str, Callable[..., Policy]] = {
    "mru": lambda requests, seed: MRU(),
    "filo": lambda requests, seed: FILO(),
    "depth": lambda requests, seed: Depth(),
    "lru-k": lambda requests, seed, k=2: LRUK(k),
    "lirs": lambda requests, seed: LIRS(),
    "lfu-da": lambda requests, seed: LFUDA(),
    "gdsf": lambda requests, seed, knee=50_000.0: GDSF(knee),
    "hyperbolic": lambda requests, seed: Hyperbolic(),
    "lhd": lambda requests, seed: LHD(),
    "vllm": lambda requests, seed: VLLM(),
}

CLASSIC_VARIANTS: dict[str, list[dict[str, Any]]] = {
    "lru-k": [{"k": 1}, {"k": 3}],
    "gdsf": [{"knee": 3.0}],
}
