"""Twins of the classic policies and of the engines', block by block; `tests.naive` merges them."""

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from math import exp, floor, inf, isnan, log2
from typing import Any

from kvsim.cache.reference import Block, Policy


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
    """The K-th most recent use, of all time or since insertion."""

    def __init__(self, k: int = 2, history: bool = True) -> None:
        self.k, self.history = k, history
        self.uses: dict[Block, list[int]] = defaultdict(list)

    def on_insert(self, block: Block) -> None:
        if not self.history:
            self.uses[block] = []

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


class Ghost(dict[Block, int]):
    """Absent blocks in the order in which they left, each with a mark."""

    def bury(self, block: Block, most: int, mark: int = 0) -> None:
        self[block] = mark
        self.trim(most)

    def trim(self, most: int) -> None:
        while len(self) > most:
            del self[next(iter(self))]


class Queued(Policy):
    """What policies with queues share: capacity, and blocks that move together."""

    def together(self, block: Block, alike: Callable[[Block], bool]) -> list[Block]:
        """Return the block and, where only leaves go, the resident blocks above that are alike."""
        blocks = [block]
        while self.cache.eviction == "leaf":
            parent = blocks[-1].parent
            if parent not in self.cache.resident or not alike(parent):
                break
            blocks.append(parent)
        return blocks


class Sieve(Queued):
    """A hand over the blocks in order of insertion."""

    def __init__(self) -> None:
        self.hand = (0, 0)  # round, insertion
        self.visited: dict[Block, bool] = {}
        self.next: dict[Block, int] = {}  # round in which a block's turn comes

    def on_insert(self, block: Block) -> None:
        self.visited.pop(block, None)
        self.next[block] = 0

    def on_touch(self, block: Block) -> None:
        self.visited[block] = block in self.visited

    def rank(self, block: Block) -> tuple[int, int]:
        current, place = self.hand
        return max(self.next[block], current + (block.inserted < place)), block.inserted

    def spares(self, block: Block) -> bool:
        self.hand = self.rank(block)
        if not self.visited[block]:
            return False
        old = self.next[block]
        for other in self.together(
            block,
            lambda one: (
                self.visited[one] and self.next[one] == old and one.inserted == block.inserted
            ),
        ):
            self.visited[other] = False
            self.next[other] = self.hand[0] + 1
        return True


class Returners(Queued):
    """Knows which missing blocks a ghost remembered when their request came."""

    def __init__(self) -> None:
        self.ghosts = (Ghost(),)
        self.returned: set[Block] = set()

    def on_request(self, chain: Sequence[Block], hits: int) -> None:
        missing = [block for block in chain if block not in self.cache.resident]
        self.counts = [sum(block in ghost for block in missing) for ghost in self.ghosts]
        self.returned = {block for block in missing if self.remembered(block)}

    def remembered(self, block: Block) -> bool:
        """Say whether a ghost remembers a block, which it then forgets."""
        known = [ghost.pop(block, None) for ghost in self.ghosts]
        return any(mark is not None for mark in known)

    def returns(self, block: Block) -> bool:
        """Say whether a block that is inserted left not long ago."""
        return self.remembered(block) or block in self.returned


class S3FIFO(Returners):
    """A small queue, a main queue and a ghost."""

    def __init__(self, small: float = 0.1, ghost: float = 0.9, fill_main: bool = False) -> None:
        super().__init__()
        self.small_share, self.ghost_share, self.fill_main = small, ghost, fill_main
        self.small: set[Block] = set()
        self.entered: dict[Block, tuple[int, float]] = {}
        self.uses: dict[Block, int] = {}

    def on_request(self, chain: Sequence[Block], hits: int) -> None:
        super().on_request(chain, hits)
        self.moves = 0

    def on_insert(self, block: Block) -> None:
        full = len(self.small) >= int(self.small_share * self.cache.capacity)
        filling = self.fill_main and not self.cache.evicted
        if not self.returns(block) and not (filling and full):
            self.small.add(block)
        self.entered[block] = self.cache.now, inf
        self.uses[block] = -1  # its touch follows

    def on_touch(self, block: Block) -> None:
        self.uses[block] = min(self.uses.get(block, 0) + 1, 3)

    def rank(self, block: Block) -> tuple[bool, tuple[int, float]]:
        small_first = len(self.small) >= int(self.small_share * self.cache.capacity)
        return (block in self.small) != small_first, self.entered[block]

    def state(self, block: Block) -> tuple[Any, ...]:
        return block in self.small, self.entered[block], self.uses[block]

    def spares(self, block: Block) -> bool:
        small, _, uses = state = self.state(block)
        if uses < (2 if small else 1):
            return False
        for other in self.together(block, lambda one: self.state(one) == state):
            self.small.discard(other)
            self.entered[other] = self.cache.now, self.moves
            self.uses[other] = 0 if small else uses - 1
        self.moves += 1
        return True

    def on_remove(self, block: Block, expired: bool) -> None:
        if block in self.small and not expired:
            self.ghosts[0].bury(block, int(self.ghost_share * self.cache.capacity))
        self.small.discard(block)


class TwoQ(Returners):
    """A FIFO queue for newcomers and an LRU queue for returners."""

    def __init__(self, recent: float = 0.25, ghost: float = 0.5) -> None:
        super().__init__()
        self.recent_share, self.ghost_share = recent, ghost
        self.recent: set[Block] = set()

    def on_insert(self, block: Block) -> None:
        if not self.returns(block):
            self.recent.add(block)

    def rank(self, block: Block) -> tuple[bool, int]:
        recent = block in self.recent
        recent_first = len(self.recent) > int(self.recent_share * self.cache.capacity)
        return recent != recent_first, block.inserted if recent else 0

    def on_remove(self, block: Block, expired: bool) -> None:
        if block in self.recent and not expired:
            self.ghosts[0].bury(block, int(self.ghost_share * self.cache.capacity))
        self.recent.discard(block)


class ARC(Returners):
    """Lists of blocks used once and more often, and a ghost of each."""

    def __init__(self) -> None:
        super().__init__()
        self.ghosts = self.left_once, self.left_twice = Ghost(), Ghost()
        self.once: set[Block] = set()
        self.target = 0.0
        self.new: set[Block] = set()

    def on_request(self, chain: Sequence[Block], hits: int) -> None:
        capacity = self.cache.capacity
        self.left_once.trim(max(0, capacity - len(self.once)))
        self.left_twice.trim(2 * capacity - len(self.cache.resident) - len(self.left_once))
        once, twice = len(self.left_once), len(self.left_twice)
        super().on_request(chain, hits)
        from_once, from_twice = self.counts
        if from_once:
            self.target = min(capacity, self.target + from_once * max(1, twice / once))
        if from_twice:
            self.target = max(0, self.target - from_twice * max(1, once / twice))
        self.tie = from_twice > 0

    def on_insert(self, block: Block) -> None:
        if not self.returns(block):
            self.once.add(block)
        self.new.add(block)

    def on_touch(self, block: Block) -> None:
        if block not in self.new:
            self.once.discard(block)
        self.new.discard(block)

    def rank(self, block: Block) -> bool:
        size = len(self.once)
        once_first = size > self.target or (self.tie and size == self.target and size > 0)
        return (block in self.once) != once_first

    def on_remove(self, block: Block, expired: bool) -> None:
        if not expired:
            once = block in self.once
            ghost = self.left_once if once else self.left_twice
            ghost.bury(block, self.cache.capacity * (1 if once else 2))
        self.once.discard(block)


class SLRU(Queued):
    """A probationary and a protected segment."""

    def __init__(self, protected: float = 0.8) -> None:
        self.share = protected
        self.protected: set[Block] = set()
        self.entered: dict[Block, int] = {}
        self.new: set[Block] = set()

    def most(self) -> int:
        return int(self.share * self.cache.capacity)

    def on_insert(self, block: Block) -> None:
        self.entered[block] = self.cache.now
        self.new.add(block)

    def on_touch(self, block: Block) -> None:
        if block in self.cache.resident and block not in self.new:
            self.protected.add(block)
        self.new.discard(block)

    def rank(self, block: Block) -> tuple[bool, int]:
        safe = block in self.protected
        full = len(self.protected) > self.most()
        return safe != full, 0 if safe else self.entered[block]

    def spares(self, block: Block) -> bool:
        excess = len(self.protected) - self.most()
        if block not in self.protected or excess <= 0:
            return False
        alike = self.together(block, lambda one: one in self.protected and one.last == block.last)
        for other in alike[:excess]:
            self.protected.remove(other)
            self.entered[other] = self.cache.now
        return True

    def on_remove(self, block: Block, expired: bool) -> None:
        self.protected.discard(block)


class WTinyLFU(SLRU):
    """A window before SLRU, which a newcomer leaves by being asked for more than a victim."""

    def __init__(self, window: float = 0.01, protected: float = 0.8) -> None:
        super().__init__(protected)
        self.window_share = window
        self.window: set[Block] = set()
        self.count: Counter[Block] = Counter()
        self.asked = 0
        self.contender: Block | None = None
        self.lost = False

    def size(self) -> int:
        return max(1, int(self.window_share * self.cache.capacity))

    def most(self) -> int:
        return int(self.share * (self.cache.capacity - self.size()))

    def on_request(self, chain: Sequence[Block], hits: int) -> None:
        self.asked += len(chain)
        if self.asked >= 10 * self.cache.capacity:
            self.asked = 0
            for block in self.count:
                self.count[block] //= 2

    def on_insert(self, block: Block) -> None:
        super().on_insert(block)
        if self.cache.evicted:
            self.window.add(block)

    def on_touch(self, block: Block) -> None:
        self.count[block] = min(self.count[block] + 1, 15)
        super().on_touch(block)
        self.protected -= self.window

    def rank(self, block: Block) -> tuple[int, int]:
        full = len(self.protected) > self.most()
        if block in self.window:
            if block is self.contender:
                return (-3 if self.lost else 2), 0
            return (-2 if not self.contender and len(self.window) > self.size() else 3), 0
        if block in self.protected:
            return (-1 if full else 1), 0
        return 0, self.entered[block]

    def spares(self, block: Block) -> bool:
        excess = len(self.window) - self.size()
        if block in self.window:
            if not self.contender and excess > 0:
                self.contender = block
                return True
            self.contender, self.lost = None, False
            return False
        if super().spares(block):
            return True
        if self.contender:
            self.lost = self.count[self.contender] <= self.count[block]
            if self.lost:
                return True
            alike = self.together(
                self.contender,
                lambda one: one in self.window and one.last == self.contender.last,  # type: ignore
            )
            for other in alike[:excess]:
                self.window.remove(other)
                self.entered[other] = self.cache.now
            self.contender = None
        return False

    def on_remove(self, block: Block, expired: bool) -> None:
        super().on_remove(block, expired)
        self.window.discard(block)


def mix(value: int, salt: int) -> int:
    """Hash two integers: the finaliser of splitmix64, in integers without bound."""
    mask = 2**64 - 1
    z = value ^ salt * 0x9E3779B97F4A7C15 & mask
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & mask
    z = (z ^ z >> 27) * 0x94D049BB133111EB & mask
    return z ^ z >> 31


class LeCaR(InCache):
    """A draw between LRU and LFU, and a history of either's victims."""

    def __init__(self, seed: int, rate: float = 0.45, history: float = 0.5) -> None:
        super().__init__()
        self.seed, self.rate, self.share = seed, rate, history
        self.weight = 0.5
        self.by_lru = True
        self.histories = {True: Ghost(), False: Ghost()}

    def on_request(self, chain: Sequence[Block], hits: int) -> None:
        missing = [block for block in chain if block not in self.cache.resident]
        lru, lfu = (
            weight * self.regret(missing[:1], self.histories[by_lru])
            for by_lru, weight in ((True, self.weight), (False, 1 - self.weight))
        )
        if missing:
            self.weight = min(max(lru / (lru + lfu), 0.01), 0.99)
        for block in missing:
            for history in self.histories.values():
                history.pop(block, None)
        self.by_lru = (mix(self.seed, self.cache.now + 1) >> 11) / 2**53 < self.weight

    def regret(self, missed: Sequence[Block], history: Ghost) -> float:
        if not missed or missed[0] not in history:
            return 1.0
        age = self.cache.inserted - history[missed[0]]
        return exp(-self.rate * (0.005 ** (1 / self.cache.capacity)) ** age)

    def on_insert(self, block: Block) -> None:
        super().on_insert(block)
        for history in self.histories.values():
            history.pop(block, None)

    def rank(self, block: Block) -> int:
        return 0 if self.by_lru else self.uses[block]

    def on_remove(self, block: Block, expired: bool) -> None:
        if not expired:
            history = self.histories[self.by_lru]
            history.bury(block, int(self.share * self.cache.capacity), self.cache.inserted)


CLASSICS: dict[str, Callable[..., Policy]] = {
    "mru": lambda requests, seed: MRU(),
    "filo": lambda requests, seed: FILO(),
    "depth": lambda requests, seed: Depth(),
    "lru-k": lambda requests, seed, k=2, history=True: LRUK(k, history),
    "lirs": lambda requests, seed: LIRS(),
    "lfu-da": lambda requests, seed: LFUDA(),
    "gdsf": lambda requests, seed, knee=50_000.0: GDSF(knee),
    "hyperbolic": lambda requests, seed: Hyperbolic(),
    "lhd": lambda requests, seed: LHD(),
    "slru": lambda requests, seed, protected=0.8: SLRU(protected),
    "2q": lambda requests, seed, recent=0.25, ghost=0.5: TwoQ(recent, ghost),
    "arc": lambda requests, seed: ARC(),
    "s3-fifo": lambda requests, seed, **parameters: S3FIFO(**parameters),
    "sieve": lambda requests, seed: Sieve(),
    "w-tinylfu": lambda requests, seed, window=0.01, protected=0.8: WTinyLFU(window, protected),
    "lecar": lambda requests, seed, rate=0.45, history=0.5: LeCaR(seed, rate, history),
    "vllm": lambda requests, seed: VLLM(),
}

CLASSIC_VARIANTS: dict[str, list[dict[str, Any]]] = {
    "lru-k": [{"k": 1}, {"k": 3}, {"history": False}],
    "gdsf": [{"knee": 3.0}],
    "slru": [{"protected": 0.4}],
    "2q": [{"recent": 0.5, "ghost": 2.0}],
    "s3-fifo": [{"small": 0.5, "ghost": 2.0}, {"small": 0.4, "fill_main": True}],
    "w-tinylfu": [{"window": 0.5, "protected": 0.5}],
    "lecar": [{"rate": 4.0, "history": 2.0}],
}
