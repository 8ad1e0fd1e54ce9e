"""Slow, obvious twins of the hazard, cost and coherent-session policies.

`tests.naive` merges them with the others.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

from kvsim.cache.costs import LLAMA_3_70B
from kvsim.cache.reference import Block, Policy, Request


@dataclass
class History:
    """What is known of a session."""

    requests: int = 0
    gaps: float = 0.0  # seconds
    latest: int = -1  # request
    arrival: float = 0.0  # of the latest request, seconds
    prompt: int = 0  # tokens of the latest request
    losing_since: int | None = None  # request


class Factorial(Policy):
    """The worth of a block is probability of return times cost."""

    def __init__(
        self,
        ideas: str,
        requests: Sequence[Request],
        horizon: float = 300.0,
        gap: float = 60.0,
        weight: float = 1.0,
        returns: float = 1.0,
        ends: float = 1.0,
        doubling: float = LLAMA_3_70B.doubling,
    ) -> None:
        self.ideas = ideas
        self.horizon, self.gap, self.weight = horizon, gap, weight
        self.returns, self.ends, self.doubling = returns, ends, doubling
        self.sessions = sessions_of(requests)
        self.history: dict[int, History] = {}
        self.owner: dict[Block, History] = {}

    def on_request(self, chain: Sequence[Block], hits: int) -> None:
        now = self.cache.now
        request = self.cache.requests[now]
        session = self.history.setdefault(self.sessions[now], History())
        if session.requests:
            session.gaps += request.arrival - session.arrival
        session.requests += 1
        session.latest = now
        session.arrival = request.arrival
        session.prompt = request.input_tokens
        session.losing_since = None

    def on_touch(self, block: Block) -> None:
        self.owner[block] = self.history[self.sessions[self.cache.now]]

    def on_remove(self, block: Block, expired: bool) -> None:
        session = self.owner[block]
        if not expired and session.losing_since is None:
            session.losing_since = self.cache.now

    def rank(self, block: Block) -> float:
        session = self.owner[block]
        now = self.cache.now
        together = "g" in self.ideas
        if together and session.losing_since is not None and session.losing_since < now:
            return -inf
        if "h" in self.ideas:
            worth = self.chance(session, self.cache.requests[now].arrival - session.arrival)
        else:
            worth = 1 / (1 + now - (session.latest if together else block.last))
        if "c" in self.ideas:
            above = tokens_above(block)
            worth *= 1 + (session.prompt / 2 if together else above) / self.doubling
        return worth

    def chance(self, session: History, idle: float) -> float:
        """Return P(request within the horizon | idle)."""
        back = session.requests - 1
        shape = self.weight + back
        scale = self.weight * self.gap + session.gaps
        end = self.ends / (self.ends + self.returns + back)
        alive = (1 - end) * (scale / (scale + idle)) ** shape
        soon = 1 - ((scale + idle) / (scale + idle + self.horizon)) ** shape
        return alive * soon / (end + alive)


def tokens_above(block: Block) -> int:
    """Return the tokens of all blocks between the block and the root."""
    above = 0
    while block.parent:
        block = block.parent
        above += block.tokens
    return above


def sessions_of(requests: Sequence[Request]) -> list[int]:
    """Return the session of each request; where there is none, the conversation it continues."""
    if all(request.session >= 0 for request in requests):
        return [request.session for request in requests]
    latest: dict[Hashable, int] = {}  # request that used a block last
    sessions: list[int] = []
    for now, request in enumerate(requests):
        blocks = [(request.namespace, request.chain[: i + 1]) for i in range(len(request.chain))]
        seen = [block for block in blocks if block in latest]
        sessions.append(now)
        if len(seen) >= 2:
            earlier = latest[seen[-1]]
            if len(seen) >= len(requests[earlier].chain) - 1:
                sessions[now] = sessions[earlier]
        latest.update(dict.fromkeys(blocks, now))
    return sessions


def twin(ideas: str) -> Callable[..., Policy]:
    return lambda requests, seed, **parameters: Factorial(ideas, requests, **parameters)


HAZARDS: dict[str, Callable[..., Policy]] = {
    ideas: twin(ideas) for ideas in ("h", "c", "g", "hc", "hg", "cg", "hcg")
}

# Priors and horizons on the scale of the random traces, where the defaults hardly differ.
HAZARD = {"horizon": 3.0, "gap": 2.0, "weight": 0.5, "returns": 2.0, "ends": 0.5}
COST = {"doubling": 4.0}
HAZARD_VARIANTS: dict[str, list[dict[str, Any]]] = {
    ideas: [(HAZARD if "h" in ideas else {}) | (COST if "c" in ideas else {})]
    for ideas in HAZARDS
    if ideas != "g"
}
