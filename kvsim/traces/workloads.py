"""Seeded synthetic workloads, written by the project itself, in the WEKA session format.

`agent_sessions` imitates a fleet of coding agents. Its rule, in the order in which it draws:

1. **Spans.** The sessions' lives are the mid-quantiles of one log-normal distribution.
2. **Requests.** Longer sessions have more of them, with some noise.
3. **Gaps.** The pauses between arrivals are stratified draws from three modes: tool loops
   (seconds), a human reading and typing (minutes), a human who is away (hours). The longest gaps
   go to the sessions with most of their span left to fill; how far the away mode reaches is
   chosen so that all gaps together fill all spans.
4. **Actors.** Human pauses cut a session into bursts. Within a burst the main agent may hand over
   to parallel sub-agents, which work in its place or, in the background, beside it.
5. **Service.** A request runs at most until its own agent's next request; the main agent also
   stops when it hands over. One scale a session makes the time that it executes fit its duty.
6. **Chains.** A context grows by each answer and each tool result. Beyond a limit it is
   compacted: cut back to tools and system prompt and followed by a summary. After a pause the
   human may rewind, which cuts the chain anywhere. Sub-agents of a kind share their tools and
   system prompt; those of the general kind share the tools with the main agent.

Every quantity that is published for the corpus of the study thus holds by construction rather
than by luck, to the tolerances in `kvsim.traces.shape.TARGETS`. `Parameters` holds every number
of the rule with its unit. Only uniform doubles are drawn from NumPy's generator, the part of its
stream that is kept from version to version.

``python -m kvsim.traces.workloads data/sample.tar.xz`` regenerates the embedded sample.
"""

import argparse
import io
import json
import os
import tarfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import count, islice
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

Session = dict[str, Any]
Floats = NDArray[np.float64]
Integers = NDArray[np.intp]
Flags = NDArray[np.bool_]

BLOCK_SIZE = 64  # tokens


@dataclass(frozen=True)
class LogNormal:
    """A log-normal distribution restricted to [low, high]; all but `sigma` in the drawn unit."""

    median: float
    sigma: float
    low: float = 0.0
    high: float = np.inf

    def quantile(self, level: Floats) -> Floats:
        """Give the quantiles at `level`, each in (0, 1)."""
        normal = NormalDist(np.log(self.median), self.sigma)
        below = normal.cdf(np.log(self.low)) if self.low > 0 else 0.0
        inside = (normal.cdf(np.log(self.high)) if self.high < np.inf else 1.0) - below
        return np.exp([normal.inv_cdf(below + inside * q) for q in level])


@dataclass(frozen=True)
class Parameters:
    """Every number of the agent workload: ``_s`` in seconds, ``_tokens`` in tokens, shares of 1."""

    # sessions
    span_s: LogNormal = LogNormal(1.8 * 3600, 2.14)
    requests: float = 86.0  # mean a session
    requests_per_span: float = 0.22  # exponent: requests ~ span ** this
    requests_sigma: float = 0.35
    # gaps; what neither pauses nor is away is a tool loop
    tool_gap_s: LogNormal = LogNormal(1.8, 1.15, 0.05, 40.0)
    pause_gap_s: LogNormal = LogNormal(260.0, 1.25, 40.0, 3600.0)
    away_gap_s: tuple[float, float] = (3605.0, 500_000.0)
    pause_share: float = 0.093
    away_share: float = 0.0098
    burst_sigma: float = 1.0  # how unequal the bursts between pauses are
    # sub-agents
    delegation: float = 0.06  # chance at each request of the main agent
    background: float = 0.3  # of hand-overs
    parallel: int = 4  # sub-agents, at most
    agent_requests: tuple[int, int] = (4, 12)  # a sub-agent, about
    general_kind: float = 0.4  # of hand-overs
    # service
    # pairs of a quantile and the share of its life that a session executes
    duty: tuple[tuple[float, float], ...] = (
        (0.0, 0.002),
        (0.25, 0.034),
        (0.5, 0.139),
        (0.75, 0.339),
        (0.855, 0.5),
        (1.0, 0.85),
    )
    service_sigma: float = 0.9
    service_limit_s: float = 300.0
    occupancy: tuple[float, float] = (0.6, 0.97)  # of the time until the next request, at most
    streamed: float = 0.25
    untimed: float = 0.02  # requests without api_time, as in the original; all within bursts
    # chains, in tokens
    tool_tokens: tuple[int, int] = (11_900, 12_974)
    system_tokens: tuple[int, int] = (2_760, 4_290)
    prompt_tokens: LogNormal = LogNormal(72_000, 0.6, 500, 120_000)
    result_tokens: LogNormal = LogNormal(800, 1.2, 20, 30_000)
    context_limit: int = 165_000
    summary_tokens: tuple[int, int] = (20_000, 50_000)  # with the latest messages, kept
    rewind: float = 0.04  # of pauses
    agent_tool_tokens: int = 8_306
    agent_system_tokens: int = 735
    task_tokens: LogNormal = LogNormal(1_500, 1.0, 100, 40_000)
    output_tokens_per_s: float = 60.0


def agent_sessions(
    sessions: int = 48, seed: int = 0, parameters: Parameters | None = None
) -> Iterator[Session]:
    """Generate the agent workload of this module's docstring.

    Parameters
    ----------
    sessions
        Number of sessions. The published shape needs about 40 of them.
    seed
        Seed of all draws.
    parameters
        Numbers of the rule; the default gives the published shape.

    Yields
    ------
    dict
        One session in the WEKA format: times in seconds since its start, those of a sub-agent's
        requests since the sub-agent's marker; ``floor(in / 64)`` block ids, local to the session.
    """
    p = parameters or Parameters()
    rng = np.random.Generator(np.random.PCG64(seed))
    spans = p.span_s.quantile((np.arange(sessions) + 0.5) / sessions)
    gaps = _deal_gaps(spans, _request_counts(spans, rng, p), rng, p)
    plans = [_plan(g, rng, p) for g in gaps]
    _serve(plans, p)
    prompts = p.prompt_tokens.quantile(_stratified(sessions, rng))
    for index, prompt in zip(_permutation(sessions, rng), prompts, strict=True):
        yield _session(plans[index], int(prompt), rng, p)


def _permutation(size: int, rng: np.random.Generator) -> Integers:
    return np.argsort(rng.random(size), kind="stable")


def _stratified(size: int, rng: np.random.Generator) -> Floats:
    """Draw one uniform in each of `size` equal strata, in increasing order."""
    return (np.arange(size) + np.clip(rng.random(size), 1e-3, 1 - 1e-3)) / max(size, 1)


def _between(bounds: tuple[int, int], rng: np.random.Generator) -> int:
    return bounds[0] + int(rng.random() * (bounds[1] - bounds[0] + 1))


def _draw(distribution: LogNormal, rng: np.random.Generator) -> int:
    return int(distribution.quantile(np.clip([rng.random()], 1e-9, 1 - 1e-9))[0])


def _request_counts(spans: Floats, rng: np.random.Generator, p: Parameters) -> Integers:
    """Number of requests of each session; longer sessions tend to have more."""
    noise = LogNormal(1.0, p.requests_sigma).quantile(_stratified(len(spans), rng))
    weights = spans**p.requests_per_span * noise[_permutation(len(spans), rng)]
    counts = p.requests * len(spans) * weights / weights.sum()
    # a short life has room for a few tool loops only
    return np.maximum(3, np.minimum(counts, spans / p.tool_gap_s.median / 2)).astype(np.intp)


def _away_gaps(size: int, total: float, rng: np.random.Generator, p: Parameters) -> Floats:
    """Gaps of hours that sum to `total` seconds, as nearly as their bounds allow."""
    low, high = p.away_gap_s
    levels = _stratified(size, rng)
    powers = np.geomspace(0.05, 20, 400)
    candidates = low * (high / low) ** (levels ** powers[:, None])
    return candidates[np.argmin(np.abs(candidates.sum(axis=1) - total))]


def _deal_gaps(
    spans: Floats, counts: Integers, rng: np.random.Generator, p: Parameters
) -> list[Floats]:
    """Draw the gaps of all sessions at once and deal them out so that they fill the spans."""
    total = int((counts - 1).sum())
    pauses, aways = round(p.pause_share * total), round(p.away_share * total)
    tools = p.tool_gap_s.quantile(_stratified(total - pauses - aways, rng))
    tools = tools[_permutation(len(tools), rng)]
    long = p.pause_gap_s.quantile(_stratified(pauses, rng))
    to_fill = spans.sum() - tools.sum() - long.sum()
    long = np.concatenate([_away_gaps(aways, to_fill, rng, p)[::-1], long[::-1]])
    dealt: list[list[float]] = [[] for _ in spans]
    left = spans - (counts - 1) * tools.mean()
    for gap in long:
        taker = int(np.argmax(left))
        dealt[taker].append(gap)
        full = len(dealt[taker]) >= (counts[taker] - 1) // 2  # the rest stay tool loops
        left[taker] = -np.inf if full else left[taker] - gap
    rest = iter(tools)
    return [
        _in_bursts(list(islice(rest, int(n) - 1 - len(own))), own, rng, p)
        for n, own in zip(counts, dealt, strict=True)
    ]


def _in_bursts(
    tools: list[float], pauses: list[float], rng: np.random.Generator, p: Parameters
) -> Floats:
    """Order a session's gaps: bursts of tool loops of unequal length with a pause between two."""
    weights = LogNormal(1.0, p.burst_sigma).quantile(
        np.clip(rng.random(len(pauses) + 1), 1e-9, 1 - 1e-9)
    )
    ends = np.round(np.cumsum(weights)[:-1] / weights.sum() * len(tools)).astype(np.intp)
    shuffled = np.asarray(pauses)[_permutation(len(pauses), rng)]
    return np.insert(np.asarray(tools), ends, shuffled)


@dataclass(eq=False)
class _Plan:
    """The requests of one session in order of arrival, before they get tokens."""

    arrival: Floats  # seconds
    pause: Flags  # the human pauses before this request
    actor: Integers  # 0: the main agent, else the number of a sub-agent
    kinds: list[str]  # of the sub-agents 1, 2, ...
    room: Floats  # seconds until which a request may run at most
    pace: Floats  # relative length of the service
    streamed: Flags
    timed: Flags
    service: Floats  # seconds


def _plan(gaps: Floats, rng: np.random.Generator, p: Parameters) -> _Plan:
    arrival = np.round(np.concatenate([[0.0], np.cumsum(gaps)]), 3)
    size = len(arrival)
    pause = np.concatenate([[False], gaps >= p.pause_gap_s.low])
    actor, kinds = _cast(pause, rng, p)
    low, high = p.occupancy
    room = np.minimum(_room(arrival, actor, p), p.service_limit_s)
    pace = LogNormal(1.0, p.service_sigma).quantile(_stratified(size, rng))
    streamed = rng.random(size) < p.streamed
    in_burst = np.concatenate([~pause[1:], [False]])
    return _Plan(
        arrival=arrival,
        pause=pause,
        actor=actor,
        kinds=kinds,
        room=room * (low + (high - low) * rng.random(size)),
        pace=pace[_permutation(size, rng)],
        streamed=streamed,
        timed=~(streamed & in_burst & (rng.random(size) < p.untimed / p.streamed)),
        service=np.zeros(size),
    )


def _cast(pause: Flags, rng: np.random.Generator, p: Parameters) -> tuple[Integers, list[str]]:
    """Give each request to the main agent (0) or to a sub-agent (1, 2, ...)."""
    actor = np.zeros(len(pause), np.intp)
    kinds: list[str] = []
    burst_ends = iter([*np.flatnonzero(pause), len(pause)])
    row, end = 1, next(burst_ends)
    while row < len(pause):
        if row >= end:
            end = next(burst_ends)
        elif row + 1 < end and rng.random() < p.delegation:
            agents = _between((1, p.parallel), rng)
            rows = min(agents * _between(p.agent_requests, rng), end - 1 - row)
            # in the background the main agent, here numbered len(kinds), goes on among them
            background = rng.random() < p.background
            choice = np.floor(rng.random(rows) * (agents + background)).astype(np.intp)
            choice += len(kinds) + (not background)
            actor[row : row + rows] = np.where(choice == len(kinds), 0, choice)
            kinds += ["general" if rng.random() < p.general_kind else "explore"] * agents
            row += rows
        row += 1
    return actor, kinds


def _room(arrival: Floats, actor: Integers, p: Parameters) -> Floats:
    """Seconds for which each request may run.

    It ends before its agent's next request. The main agent also has its answer before it starts a
    sub-agent, and the last answer of a sub-agent comes before the main agent acts again.
    """
    starts = set(np.unique(actor, return_index=True)[1].tolist())
    upcoming: dict[int, float] = {0: arrival[-1] + p.service_limit_s}
    room = np.empty(len(arrival))
    for row in range(len(arrival) - 1, -1, -1):
        who, now = int(actor[row]), float(arrival[row])
        room[row] = upcoming.get(who, upcoming[0]) - now
        upcoming[who] = now
        if row in starts:
            upcoming[0] = now
    return room


def busy(arrival: Floats, service: Floats) -> float:
    """Length of the union of the intervals [arrival, arrival + service], in seconds."""
    end = np.maximum.accumulate(arrival + service)
    covered = np.concatenate([[-np.inf], end[:-1]])
    return float(np.maximum(0.0, end - np.maximum(arrival, covered)).sum())


def _serve(plans: list[_Plan], p: Parameters) -> None:
    """Set the service times so that the sessions' duties follow the given quantiles.

    The sessions that can be busiest get the highest duties.
    """
    most = [_duty(plan.arrival, np.where(plan.timed, plan.room, 0.0)) for plan in plans]
    levels, duties = zip(*p.duty, strict=True)
    order = np.argsort(most, kind="stable")
    ranks = (np.arange(len(plans)) + 0.5) / len(plans)
    wanted = np.exp(np.interp(ranks, levels, np.log(duties)))
    for index, duty in zip(order, wanted, strict=True):
        plan = plans[index]
        scales = np.geomspace(1e-3, 1e4, 1500)
        low, high = 0, len(scales) - 1
        while high - low > 1:
            middle = (low + high) // 2
            known = np.where(plan.timed, _paced(plan, scales[middle]), 0.0)
            if _duty(plan.arrival, known) < duty:
                low = middle
            else:
                high = middle
        plan.service = _paced(plan, scales[high])


def _paced(plan: _Plan, scale: float) -> Floats:
    return np.maximum(0.01, np.floor(np.minimum(scale * plan.pace, plan.room) * 100) / 100)


def _duty(arrival: Floats, service: Floats) -> float:
    return busy(arrival, service) / float((arrival + service).max() - arrival[0])


class _Chain:
    """The context of one agent: its tokens, and the ids of the blocks that they fill."""

    def __init__(self, fresh: Iterator[int], ids: Iterable[int] = ()) -> None:
        self.fresh = fresh
        self.ids = list(ids)
        self.tokens = BLOCK_SIZE * len(self.ids)

    def grow(self, tokens: int) -> None:
        self.tokens += tokens
        self.ids.extend(islice(self.fresh, self.tokens // BLOCK_SIZE - len(self.ids)))

    def cut(self, tokens: int) -> None:
        self.tokens = tokens
        del self.ids[tokens // BLOCK_SIZE :]


def _session(plan: _Plan, prompt: int, rng: np.random.Generator, p: Parameters) -> Session:
    """Write a planned session down in the WEKA format."""
    tool_tokens, system_tokens = _between(p.tool_tokens, rng), _between(p.system_tokens, rng)
    fresh = count(1)
    main = _Chain(fresh)
    main.grow(tool_tokens)
    tools = list(main.ids)
    main.grow(system_tokens)
    prefixes: dict[str, list[int]] = {}
    chains = {0: main}
    entries: list[dict[str, Any]] = []
    nested: dict[int, dict[str, Any]] = {}
    previous: dict[int, int] = {}
    answers = np.maximum(1, np.round(plan.service * p.output_tokens_per_s)).astype(np.intp)
    for row, who in enumerate(plan.actor.tolist()):
        last = previous.get(who)
        now = float(plan.arrival[row])
        if who not in chains:
            kind = plan.kinds[who - 1]
            chains[who] = _sub_agent_chain(kind, tools, prefixes, fresh, p)
            nested[who] = _marker(now, len(nested) + 1, kind)
            entries.append(nested[who])
        chain = chains[who]
        if last is None:
            chain.grow(_draw(p.task_tokens, rng) if who else prompt)
        else:
            if who == 0 and plan.pause[row] and rng.random() < p.rewind:
                base = tool_tokens + system_tokens
                chain.cut(base + int(rng.random() * (chain.tokens - base)))
            chain.grow(int(answers[last]) + _draw(p.result_tokens, rng))
            if chain.tokens > p.context_limit:
                chain.cut(tool_tokens + system_tokens)
                chain.grow(_between(p.summary_tokens, rng))
        previous[who] = row
        request = _request(plan, row, chain, int(answers[row]), last)
        if who:
            request["t"] = round(now - nested[who]["t"], 3)
            nested[who]["requests"].append(request)
        else:
            entries.append(request)
    return {
        "models": ["agent-large"],
        "block_size": BLOCK_SIZE,
        "hash_id_scope": "local",
        "tool_tokens": tool_tokens,
        "system_tokens": system_tokens,
        "requests": entries,
    }


def _sub_agent_chain(
    kind: str, tools: list[int], prefixes: dict[str, list[int]], fresh: Iterator[int], p: Parameters
) -> _Chain:
    """Start a sub-agent's chain from what its kind shares within the session."""
    if kind not in prefixes:
        chain = _Chain(fresh, tools if kind == "general" else ())
        chain.grow(p.agent_system_tokens + (0 if kind == "general" else p.agent_tool_tokens))
        prefixes[kind] = chain.ids
    return _Chain(fresh, prefixes[kind])


def _marker(now: float, number: int, kind: str) -> dict[str, Any]:
    return {
        "t": now,
        "type": "subagent",
        "agent_id": f"agent_{number:03}",
        "subagent_type": kind,
        "status": "completed",
        "requests": [],
    }


def _request(plan: _Plan, row: int, chain: _Chain, answer: int, last: int | None) -> dict[str, Any]:
    """Give one request's entry; `last` is the row of the same agent's request before it."""
    now, service = float(plan.arrival[row]), float(plan.service[row])
    last_row = row + 1 == len(plan.pause) or bool(plan.pause[row + 1])
    entry: dict[str, Any] = {
        "t": now,
        "type": "s" if plan.streamed[row] else "n",
        "model": "agent-small" if plan.actor[row] else "agent-large",
        "in": chain.tokens,
        "out": answer,
        "hash_ids": list(chain.ids),
        "stop": "end_turn" if last_row else "tool_use",
    }
    if plan.timed[row]:
        entry["api_time"] = round(service, 2)
        if plan.streamed[row]:
            entry["ttft"] = round(service / 4, 2)
    previous_end = now if last is None else float(plan.arrival[last] + plan.service[last])
    entry["think_time"] = round(max(0.0, now - previous_end), 3)
    return entry


def zipf_documents(
    requests: int = 500, documents: int = 50, exponent: float = 1.0, blocks: int = 20, seed: int = 0
) -> Iterator[Session]:
    """Questions about shared documents: a long common prefix and a short suffix of one's own.

    One session, a request a second. Document k is asked about with weight ``k ** -exponent``; it
    holds `blocks` blocks, followed by one block that no other request has.
    """
    rng = np.random.Generator(np.random.PCG64(seed))
    popularity = np.cumsum(np.arange(1, documents + 1) ** -exponent)
    chosen = np.searchsorted(popularity, rng.random(requests) * popularity[-1], side="right")
    rows = [
        {
            "t": float(row),
            "type": "n",
            "in": BLOCK_SIZE * (blocks + 1),
            "out": BLOCK_SIZE,
            "hash_ids": [*range(k * blocks, (k + 1) * blocks), documents * blocks + row],
            "api_time": 1.0,
        }
        for row, k in enumerate(chosen.tolist())
    ]
    yield {"id": "zipf", "block_size": BLOCK_SIZE, "hash_id_scope": "local", "requests": rows}


def multi_turn_chat(
    sessions: int = 20, turns: int = 8, blocks: int = 6, think_s: float = 60.0, seed: int = 0
) -> Iterator[Session]:
    """Chats that only grow: each turn adds `blocks` blocks after a think time of mean `think_s`.

    A conversation has 1 to ``2 * turns - 1`` turns, each number equally often.
    """
    rng = np.random.Generator(np.random.PCG64(seed))
    for session in range(sessions):
        size = 1 + int(rng.random() * (2 * turns - 1))
        arrival = np.round(np.cumsum(1.0 - think_s * np.log1p(-rng.random(size))), 3)
        rows = [
            {
                "t": float(t),
                "type": "n",
                "in": BLOCK_SIZE * blocks * (turn + 1),
                "out": BLOCK_SIZE,
                "hash_ids": list(range(1, blocks * (turn + 1) + 1)),
                "api_time": 1.0,
            }
            for turn, t in enumerate((arrival - arrival[0]).tolist())
        ]
        name = f"chat_{session + 1:04}"
        yield {"id": name, "block_size": BLOCK_SIZE, "hash_id_scope": "local", "requests": rows}


def write(path: str | os.PathLike[str], sessions: Iterable[Session]) -> None:
    """Write sessions to a ``.tar.xz``, one JSON file each, the same bytes every time.

    A session without an id is named by its position. The file is complete or not there at all.

    Parameters
    ----------
    path
        File to write or replace.
    sessions
        Session dicts in the WEKA format.
    """
    path = Path(path)
    partial = path.with_name(path.name + ".part")
    try:
        with tarfile.open(partial, "w:xz", format=tarfile.USTAR_FORMAT, preset=9) as archive:
            for number, session in enumerate(sessions, start=1):
                named = {"id": f"session_{number:04}", **session}
                text = json.dumps(named, separators=(",", ":")).encode() + b"\n"
                member = tarfile.TarInfo(f"traces/{named['id']}.json")
                member.size = len(text)
                archive.addfile(member, io.BytesIO(text))
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Write the embedded sample.")
    parser.add_argument("path", help="file to write, as a rule data/sample.tar.xz")
    write(parser.parse_args().path, agent_sessions())
