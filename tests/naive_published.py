"""Slow, obvious twins of the published KV policies and of liveness.

`PUBLISHED` and `PUBLISHED_VARIANTS` are merged into those of `tests.naive`.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Sequence
from functools import cache
from math import erfc, exp, inf, log, sqrt
from typing import Any

from kvsim.cache.costs import LLAMA_3_70B
from kvsim.cache.policies import liveness as live
from kvsim.cache.reference import Block, Policy, Request
from tests.naive_classics import mix
from tests.naive_hazard import sessions_of
from tests.strategies import BLOCK_SIZE


class Liveness(Policy):
    """LRU, or the Gittins index, whichever hit more of late."""

    def __init__(
        self,
        weight: float = 0.3,
        prior: float = 10.0,
        period: int = 256,
        memory: float = 0.9,
        margin: float = 0.05,
        factor: float = 1.5,
        warmup: float = 4.0,
    ) -> None:
        self.weight, self.prior, self.period, self.memory = weight, prior, period, memory
        self.margin, self.factor, self.warmup = margin, factor, warmup
        self.last: dict[Block, float] = {}
        self.start: dict[Block, float] = {}
        self.kind: dict[Block, int] = {}
        self.mean: dict[Block, float] = {}
        self.child: dict[Block, Block | None] = {}
        self.uses: Counter[tuple[int, int]] = Counter()  # (class, age bin)
        self.left: Counter[tuple[int, int]] = Counter()
        self.index = [[0.0] * live.BINS for _ in range(live.CLASSES)]
        self.used: dict[str, list[float]] = {"age": [0.0] * live.LEVELS}
        self.used["index"] = [0.0] * live.LEVELS
        self.held = {key: [0.0] * live.LEVELS for key in self.used}
        self.new: Counter[tuple[str, int]] = Counter()
        self.blocks = self.nonempty = 0
        self.looks = 0.0
        self.rules = False
        self.due = 0

    def on_request(self, chain: Sequence[Block], hits: int) -> None:
        now = self.cache.now
        time = self.cache.requests[now].arrival
        self.blocks += len(chain)
        self.nonempty += len(chain) > 0
        seen = [block for block in chain if block in self.last]
        kind, mean = 0, 0.0
        if seen:
            deepest = seen[-1]
            mean = log(1 + time - self.last[deepest])
            if self.kind[deepest] > 1:
                old = self.mean[deepest]
                mean = old + self.weight * (mean - old)
            kind = 2 * (1 + min(int(mean / log(3.0)), live.SPEEDS - 1))
        following = [*chain[1:], None]
        for block, child in reversed(list(zip(chain, following, strict=False))):
            if block in self.last:
                place = self.kind[block], age_bin(time - self.start[block])
                self.uses[place] += 1
                self.new["index", self.level(*place)] += 1
                self.new["age", age_bin(time - self.last[block])] += 1
                if self.child[block] is not child:
                    self.pass_over(self.child[block], time)
            self.last[block] = self.start[block] = time
            self.kind[block], self.mean[block], self.child[block] = kind, mean, child
        if now >= self.due:
            self.look(time)
            self.due = now + self.period

    def pass_over(self, block: Block | None, time: float) -> None:
        while block:
            if self.kind[block] % 2 == 0:
                self.left[self.kind[block], age_bin(time - self.start[block])] += 1
                self.kind[block] += 1
                self.start[block] = time
            block = self.child[block]

    def level(self, kind: int, age: int) -> int:
        """Return the level of the lowest index on the way to an age."""
        lowest = min(self.index[kind][: age + 1])
        if lowest <= 1e-9:
            return live.LEVELS - 1
        return min(max(int(-log(lowest) * live.FINENESS) + live.TOP, 0), live.LEVELS - 1)

    def look(self, time: float) -> None:
        waiting = Counter(
            (self.kind[block], age_bin(time - self.start[block])) for block in self.last
        )
        held = {
            "age": Counter(age_bin(time - last) for last in self.last.values()),
            "index": Counter[int](),
        }
        for place, blocks in waiting.items():
            held["index"][self.level(*place)] += blocks
        for key in self.used:
            for i in range(live.LEVELS):
                self.used[key][i] = self.used[key][i] * self.memory + self.new[key, i]
                self.held[key][i] = self.held[key][i] * self.memory + held[key][i]
        self.new.clear()
        self.looks = self.looks * self.memory + 1
        self.decide()
        self.learn(waiting + self.left)

    def decide(self) -> None:
        room = self.cache.capacity * self.looks
        by_age, by_index = (self.fill(key, room) for key in ("age", "index"))
        ease = 0.5 if self.rules else 1.0
        gain = by_index - by_age
        every = self.fill("age", inf)
        self.rules = (
            self.looks > self.warmup
            and gain >= ease * self.margin * (every - by_age)
            and gain >= ease * (self.factor - 1) * by_age
        )

    def fill(self, key: str, room: float) -> float:
        hits = 0.0
        for used, held in zip(self.used[key], self.held[key], strict=True):
            if held >= room:
                return hits + used * room / held if held else hits
            room -= held
            hits += used
        return hits

    def learn(self, waiting: Counter[tuple[int, int]]) -> None:
        strength = self.prior * max(self.blocks, 1) / max(self.nonempty, 1)
        ages = range(live.BINS)
        for passed in range(2):
            kinds = range(passed, live.CLASSES, 2)
            uses = [sum(self.uses[kind, age] for kind in kinds) for age in ages]
            wait = [sum(waiting[kind, age] for kind in kinds) for age in ages]
            common = hazards(uses, wait, [live.PRIOR[passed]] * live.BINS, strength)
            for kind in kinds:
                uses = [self.uses[kind, age] for age in ages]
                wait = [waiting[kind, age] for age in ages]
                self.index[kind] = gittins(hazards(uses, wait, common, strength))

    def rank(self, block: Block) -> float:
        if not self.rules:
            return 0.0
        time = self.cache.requests[self.cache.now].arrival
        return self.index[self.kind[block]][age_bin(time - self.start[block])]


def age_bin(age: float) -> int:
    """Return the bin of an age in seconds."""
    if age <= live.FIRST:
        return 0
    return min(int(log(age / live.FIRST) / log(live.GROWTH)) + 1, live.BINS - 1)


def hazards(
    uses: Sequence[int], waiting: Sequence[int], prior: Sequence[float], strength: float
) -> tuple[float, ...]:
    """Return uses / blocks at risk a bin; what waits in a bin was at risk for half of it."""
    result = []
    for i in range(live.BINS):
        risk = sum(uses[i:]) + 0.5 * waiting[i] + sum(waiting[i + 1 :])
        result.append((uses[i] + strength * prior[i]) / (risk + strength))
    return tuple(result)


@cache
def gittins(hazard: tuple[float, ...]) -> list[float]:
    """Return the best P(use) / E[time] over horizons, for each age."""
    indices = []
    for age in range(live.BINS):
        alive, use, time, best = 1.0, 0.0, 0.0, 0.0
        for i in range(age, live.BINS):
            used = alive * hazard[i]
            use += used
            time += live.WIDTHS[i] * (0.5 if i == age else 1.0) * (alive - 0.5 * used)
            alive -= used
            best = max(best, use / time)
        indices.append(best)
    return indices


def sessions_seen(policy: Policy) -> list[int]:
    """Return the session of each request of the trace that the policy's cache replays."""
    return sessions_of(policy.cache.requests)


class LengthAware(Policy):
    """Uses since insertion, then position in steps, the latest first."""

    def __init__(self, block_size: int, step: int = 1024) -> None:
        self.step = max(step // block_size, 1)
        self.uses: Counter[Block] = Counter()

    def on_insert(self, block: Block) -> None:
        self.uses[block] = 0

    def on_touch(self, block: Block) -> None:
        self.uses[block] += 1

    def rank(self, block: Block) -> tuple[int, int]:
        return self.uses[block], -(block.depth // self.step)


class PGDSF(Policy):
    """A clock plus uses times the cost of the latest computation."""

    def __init__(self, block_size: int, knee: float = 50_000.0) -> None:
        self.block_size, self.knee = block_size, knee
        self.clock = 0.0
        self.at: dict[Block, float] = {}
        self.uses: Counter[Block] = Counter()
        self.cost: dict[Block, float] = {}

    def on_request(self, chain: Sequence[Block], hits: int) -> None:
        tokens = sum(block.tokens for block in chain)
        found = sum(block.tokens for block in chain[:hits])
        self.token_cost = 1.0 + (found + tokens) / 2.0 / self.knee

    def on_insert(self, block: Block) -> None:
        self.uses[block] = 0
        self.cost[block] = self.token_cost

    def on_touch(self, block: Block) -> None:
        self.uses[block] += 1
        self.at[block] = self.clock

    def rank(self, block: Block) -> float:
        return self.at[block] + self.uses[block] * self.cost[block]

    def on_remove(self, block: Block, expired: bool) -> None:
        if not expired:
            self.clock = max(self.clock, self.rank(block))


class TLRU(Policy):
    """Blocks beyond what the branch needs go first."""

    def __init__(self, block_size: int, ahead: float = 512.0, budget: float = 2048.0) -> None:
        self.block_size, self.ahead, self.budget = block_size, ahead, budget
        self.high: Counter[Block] = Counter()

    def on_touch(self, block: Block) -> None:
        request = self.cache.requests[self.cache.now]
        self.high[block] = max(self.high[block], request.input_tokens + request.output_tokens)

    def rank(self, block: Block) -> bool:
        above = block.depth * self.block_size
        return above < max(self.high[block] + self.ahead - self.budget, 0)


class RLT(Policy):
    """The mark, then a number drawn at insertion, one a step."""

    def __init__(self, seed: int, block_size: int, step: int = 1024) -> None:
        self.seed = seed
        self.step = max(step // block_size, 1)
        self.phase = 0

    def on_request(self, chain: Sequence[Block], hits: int) -> None:
        marked = sum(block.last >= self.phase for block in self.cache.resident)
        if marked >= self.cache.capacity and hits < len(chain):
            self.phase = self.cache.now

    def rank(self, block: Block) -> tuple[bool, int]:
        z = mix(mix(self.seed, block.inserted + 1), block.depth // self.step + 1)
        return block.last >= self.phase, z >> 12


class WA(Policy):
    """The probability of reuse within a window, exponential by class."""

    def __init__(self, window: float = 300.0, prior: float = 60.0) -> None:
        self.window = window
        self.gaps: dict[tuple[bool, int], list[float]] = defaultdict(lambda: [prior])
        self.turns: Counter[int] = Counter()
        self.before: dict[int, tuple[float, tuple[bool, int]]] = {}
        self.kind: dict[Block, tuple[bool, int]] = {}

    def on_request(self, chain: Sequence[Block], hits: int) -> None:
        now = self.cache.now
        request = self.cache.requests[now]
        session = sessions_seen(self)[now]
        if session in self.before:
            arrival, kind = self.before[session]
            self.gaps[kind].append(request.arrival - arrival)
        self.now_kind = request.subagent, min(self.turns[session], 3)
        self.turns[session] += 1
        self.before[session] = request.arrival, self.now_kind

    def on_touch(self, block: Block) -> None:
        self.kind[block] = self.now_kind

    def rank(self, block: Block) -> float:
        gaps = self.gaps[self.kind[block]]
        mean = sum(gaps) / len(gaps)
        age = idle(self, block)
        return exp(-age / mean) - exp(-(age + self.window) / mean)


def idle(policy: Policy, block: Block) -> float:
    """Return the seconds since the block's last use."""
    requests = policy.cache.requests
    return requests[policy.cache.now].arrival - requests[block.last].arrival


class UniCache(Policy):
    """Hits by room of the queue, times log-normal survival or nearness to the root."""

    def __init__(
        self, mu: float = 1.81, sigma: float = 1.092, weight: float = 0.1, period: int = 100
    ) -> None:
        self.mu, self.sigma, self.weight, self.period = mu, sigma, weight, period
        self.latest: dict[int, float] = {}
        self.owner: dict[Block, int] = {}
        self.shared: set[Block] = set()
        self.templates: set[Block] = set()  # those shared when they were touched last
        self.longest = 1
        self.worth = [1.0, 1.0]
        self.hits = [0, 0]

    def on_request(self, chain: Sequence[Block], hits: int) -> None:
        now = self.cache.now
        session = sessions_seen(self)[now]
        self.latest[session] = self.cache.requests[now].arrival
        for block in chain:
            self.hits[block in self.templates] += block.depth < hits
            if self.owner.get(block, session) != session:
                self.shared.add(block)
                self.longest = max(self.longest, block.depth + 1)
            self.owner[block] = session
        if (now + 1) % self.period == 0:
            templates = len(self.cache.resident & self.templates)
            held = len(self.cache.resident) - templates, templates
            for queue in range(2):
                worth = self.hits[queue] / max(held[queue], 1)
                self.worth[queue] += self.weight * (worth - self.worth[queue])
                self.hits[queue] = 0

    def on_touch(self, block: Block) -> None:
        if block in self.shared:
            self.templates.add(block)

    def rank(self, block: Block) -> float:
        if block in self.templates:
            return self.worth[1] * (1.0 - block.depth / self.longest)
        time = self.cache.requests[self.cache.now].arrival - self.latest[self.owner[block]]
        if time <= 0:
            return self.worth[0]
        score = (log(time) - self.mu) / self.sigma
        return self.worth[0] * 0.5 * erfc(score / sqrt(2.0))


class Marconi(Policy):
    """Recency plus FLOPs saved a byte."""

    def __init__(
        self, block_size: int, alpha: float = 1.0, doubling: float = LLAMA_3_70B.doubling
    ) -> None:
        self.block_size, self.alpha, self.doubling = block_size, alpha, doubling
        self.latest = 0

    def on_request(self, chain: Sequence[Block], hits: int) -> None:
        self.latest = max(self.latest, (len(chain) - 1) * self.block_size)

    def rank(self, block: Block) -> float:
        position = block.depth * self.block_size
        saved = (1.0 + position / self.doubling) / (1.0 + self.latest / self.doubling)
        return 1.0 / max(self.cache.now - block.last, 1) + self.alpha * saved


class Continuum(Policy):
    """Pinned for as long as waiting is worth it; the latest session is unpinned first."""

    def __init__(self, wait: float = 10.0, rate: float = 5000.0) -> None:
        self.wait, self.rate = wait, rate
        self.gaps: Counter[int] = Counter()  # by bin
        self.start: dict[int, float] = {}
        self.latest: dict[int, float] = {}
        self.pin: dict[Block, tuple[float, int]] = {}

    def on_request(self, chain: Sequence[Block], hits: int) -> None:
        request = self.cache.requests[self.cache.now]
        self.session = sessions_seen(self)[self.cache.now]
        if self.session in self.latest:
            self.gaps[age_bin(request.arrival - self.latest[self.session])] += 1
        self.start.setdefault(self.session, request.arrival)
        self.latest[self.session] = request.arrival
        worth = self.wait + request.input_tokens / self.rate
        below, end, best, wait = 0, 0.0, 0.0, 0.0
        for age, width in enumerate(live.WIDTHS.tolist()):
            below += self.gaps[age]
            end += width
            gain = below / max(self.gaps.total(), 1) * worth - end
            if gain > best:
                best, wait = gain, end
        self.until = request.arrival + wait

    def on_touch(self, block: Block) -> None:
        self.pin[block] = self.until, self.session

    def rank(self, block: Block) -> float:
        until, session = self.pin[block]
        pinned = self.cache.requests[self.cache.now].arrival < until
        return -self.start[session] if pinned else -inf


class Foresight(Policy):
    """Knows which requests ask for a block."""

    def __init__(self, requests: Sequence[Request]) -> None:
        self.sessions = sessions_of(requests)
        self.uses: dict[tuple[Hashable, tuple[Hashable, ...]], list[int]] = defaultdict(list)
        for number, request in enumerate(requests):
            for depth in range(len(request.chain)):
                self.uses[request.namespace, request.chain[: depth + 1]].append(number)

    def next_use(self, block: Block) -> int | None:
        request = self.cache.requests[block.last]
        uses = self.uses[request.namespace, request.chain[: block.depth + 1]]
        return next((number for number in uses if number > self.cache.now), None)


class KVFlow(Foresight):
    """The requests of its session until one uses the block, the most first."""

    def rank(self, block: Block) -> float:
        following = self.next_use(block)
        if following is None:
            return -inf
        between = self.sessions[self.cache.now + 1 : following + 1]
        return -between.count(self.sessions[following])


class LPC(Foresight):
    """The probability of a continuation, by an oracle that is right so often."""

    def __init__(
        self, requests: Sequence[Request], accuracy: float = 0.9, prior: float = 60.0
    ) -> None:
        super().__init__(requests)
        self.accuracy = accuracy
        self.gaps = [prior]
        self.latest: dict[int, float] = {}

    def on_request(self, chain: Sequence[Block], hits: int) -> None:
        now = self.cache.now
        time = self.cache.requests[now].arrival
        if self.sessions[now] in self.latest:
            self.gaps.append(time - self.latest[self.sessions[now]])
        self.latest[self.sessions[now]] = time

    def rank(self, block: Block) -> float:
        p = 1.0 - self.accuracy if self.next_use(block) is None else self.accuracy
        alive = p * exp(-idle(self, block) * len(self.gaps) / sum(self.gaps))
        return alive / (alive + 1.0 - p)


PUBLISHED: dict[str, Callable[..., Policy]] = {
    "liveness": lambda requests, seed, **parameters: Liveness(**parameters),
    "length-aware": lambda requests, seed, **parameters: LengthAware(BLOCK_SIZE, **parameters),
    "pgdsf": lambda requests, seed, **parameters: PGDSF(BLOCK_SIZE, **parameters),
    "t-lru": lambda requests, seed, **parameters: TLRU(BLOCK_SIZE, **parameters),
    "rlt": lambda requests, seed, **parameters: RLT(seed, BLOCK_SIZE, **parameters),
    "wa": lambda requests, seed, **parameters: WA(**parameters),
    "unicache": lambda requests, seed, **parameters: UniCache(**parameters),
    "marconi": lambda requests, seed, **parameters: Marconi(BLOCK_SIZE, **parameters),
    "continuum": lambda requests, seed, **parameters: Continuum(**parameters),
    "kvflow": lambda requests, seed: KVFlow(requests),
    "lpc": lambda requests, seed, **parameters: LPC(requests, **parameters),
}
# Looks around often, and lets the index rule from the second look on.
EAGER = {"period": 4, "warmup": 1.0, "margin": -1e9, "factor": -1e9}
PUBLISHED_VARIANTS: dict[str, list[dict[str, Any]]] = {
    "liveness": [EAGER, {**EAGER, "margin": 0.0, "factor": 1.0, "prior": 0.1}],
    "length-aware": [{"step": 1}, {"step": 12}],
    "rlt": [{"step": 1}, {"step": 12}],
    "pgdsf": [{"knee": 8.0}],
    "t-lru": [{"ahead": 2.0, "budget": 8.0}, {"ahead": 0.0, "budget": 16.0}],
    "wa": [{"window": 5.0, "prior": 3.0}],
    "unicache": [{"period": 3, "mu": 0.5, "weight": 0.5}],
    "marconi": [{"alpha": 1.0, "doubling": 8.0}, {"alpha": 0.0}],
    "continuum": [{"wait": 5.0, "rate": 4.0}],
    "lpc": [{"accuracy": 0.6, "prior": 2.0}],
}
