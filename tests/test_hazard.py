"""What is special to the hazard, cost and coherent-session policies."""

import numpy as np
import pytest
from hypothesis import given
from numpy.testing import assert_allclose

from kvsim.cache.engine import replay
from kvsim.cache.policies.hazard import FACTORIAL as POLICIES
from kvsim.cache.policies.hazard import C, chance, conversations
from kvsim.cache.policies.lru import POLICY as LRU
from kvsim.cache.policy import Policy
from kvsim.cache.reference import Request
from tests.naive_hazard import sessions_of
from tests.strategies import Case, cases, to_trace

BY_NAME = {policy.name: policy for policy in POLICIES}
HAZARD = {"horizon": 10.0, "gap": 10.0, "weight": 1.0, "returns": 1.0, "ends": 1.0}
COST = {"doubling": 4.0}  # tokens, one block


def sessions(*rows: tuple[float, int, tuple[int, ...]]) -> list[Request]:
    """Return requests of (arrival, session, chain), with full blocks of 4 tokens."""
    return [
        Request(arrival, chain, 4 * len(chain), namespace=session, session=session)
        for arrival, session, chain in rows
    ]


def hits(name: str, capacity: int, requests: list[Request]) -> list[int]:
    policy = LRU if name == "lru" else BY_NAME[name]
    parameters = {k: v for k, v in (HAZARD | COST).items() if k in policy.parameters}
    result = replay(to_trace(requests), policy, capacity, parameters=parameters)
    return result.hit_blocks.tolist()


def scalars(**parameters: float) -> np.ndarray:
    values = HAZARD | parameters
    return np.array([1.0, 0.0, 0.0, *values.values(), 1.0])


def test_chance_by_hand() -> None:
    # Two returns after 2 s in all, idle for 58 s: shape 3, scale 12, end 1/4;
    # alive = 3/4 (12/70)^3 = 0.003778, soon = 1 - (70/80)^3 = 0.330078.
    assert_allclose(chance(2, 2.0, 58.0, scalars()), 0.003778 * 0.330078 / 0.253778, rtol=1e-3)
    # No return yet, idle for 59 s: alive = 1/2 10/69, soon = 1 - 69/79, end 1/2.
    assert_allclose(chance(0, 0.0, 59.0, scalars()), 0.072464 * 0.126582 / 0.572464, rtol=1e-4)


def test_chance_without_idle_time_and_limit_is_that_of_returning_at_all() -> None:
    assert_allclose(chance(8, 80.0, 0.0, scalars(horizon=1e300)), 9 / 10)


def test_chance_falls_with_idle_time_and_grows_with_the_horizon() -> None:
    idle = [chance(3, 30.0, seconds, scalars()) for seconds in (0.0, 1.0, 10.0, 1e3, 1e6)]
    assert idle == sorted(idle, reverse=True)
    horizons = [chance(3, 30.0, 5.0, scalars(horizon=seconds)) for seconds in (1.0, 10.0, 1e3)]
    assert horizons == sorted(horizons)


# Session 0 is regular and then silent for 58 s: P = 0.0049. Session 1 came once, and it is
# the least recently used: P = 0.0160.
SILENT = [(0.0, 0), (1.0, 0), (1.0, 1), (2.0, 0), (60.0, 2), (61.0, 1)]


@pytest.mark.parametrize(("name", "expected"), [("lru", 0), ("h", 1)])
def test_h_drops_the_regular_session_that_fell_silent(name: str, expected: int) -> None:
    requests = sessions(*((time, session, (1,)) for time, session in SILENT))
    assert hits(name, 2, requests) == [0, 1, 0, 1, 0, expected]


@pytest.mark.parametrize(("name", "expected"), [("h", 1), ("hc", 0), ("hcg", 1)])
def test_cost_weighs_against_the_chance_of_return(name: str, expected: int) -> None:
    # Five blocks for session 0. Its last costs 1 + 16/4 = 5 times a first token: 0.0245 > 0.0160.
    # The mean of its prompt costs 1 + 10/4, that of session 1 1 + 2/4: 0.0172 < 0.0240.
    chains = {0: (1, 2, 3, 4, 5), 1: (1,), 2: (1,)}
    requests = sessions(*((time, session, chains[session]) for time, session in SILENT))
    assert hits(name, 6, requests) == [0, 5, 0, 5, 0, expected]


@pytest.mark.parametrize(("name", "expected"), [("lru", 1), ("c", 0), ("cg", 0)])
def test_c_keeps_the_late_block(name: str, expected: int) -> None:
    # At request 2, block 3 of session 0 is worth 1/3 (1 + 8/4) = 1, session 1's block 1/2; with
    # G they are worth 1/3 (1 + 6/4) = 0.83 and 1/2 (1 + 2/4) = 0.75.
    requests = sessions((0, 0, (1, 2, 3)), (1, 1, (1,)), (2, 2, (1,)), (3, 1, (1,)))
    assert hits(name, 4, requests) == [0, 0, 0, expected]


@pytest.mark.parametrize(("name", "expected"), [("lru", (1, 1)), ("g", (0, 2))])
def test_g_keeps_the_stale_branch_of_a_live_session(name: str, expected: tuple[int, int]) -> None:
    # Block 2 is the least recently used leaf, session 1 the least recently used session.
    requests = sessions(
        (0, 0, (1, 2)), (1, 1, (1, 2)), (2, 0, (1, 3)), (3, 2, (1,)), (4, 3, (1,)), (5, 1, (1, 2))
    )
    # LRU: block 2 of session 0 goes, then block 2 of session 1. G: both blocks of session 1.
    assert hits(name, 5, requests)[-1] == expected[0]
    requests[-1] = sessions((5, 0, (1, 2)))[0]
    assert hits(name, 5, requests)[-1] == expected[1]


@pytest.mark.parametrize(("name", "expected"), [("h", 1), ("hg", 2)])
def test_g_goes_on_with_the_session_it_began(name: str, expected: int) -> None:
    # At 3 s session 0 (one request) has P = 0.23, session 1 (three) 0.58; at 60 s 0.016 and 0.005.
    requests = sessions(
        (0, 1, (1, 2)),
        (1, 1, (1, 2)),
        (2, 0, (1, 2)),
        (2, 1, (1, 2)),
        (3, 2, (1,)),
        (60, 3, (1,)),
        (61, 1, (1, 2)),
    )
    assert hits(name, 4, requests)[-1] == expected


def test_g_spares_a_session_that_comes_back() -> None:
    # Session 0 lost block 2 and returns: session 1 is then the least recently used.
    requests = sessions(
        (0, 0, (1, 2)), (1, 1, (1,)), (2, 2, (1,)), (3, 0, (1,)), (4, 3, (1,)), (5, 0, (1,))
    )
    assert hits("g", 3, requests) == [0, 0, 0, 1, 0, 1]


def test_subagents_share_their_session() -> None:
    # The sub-agent's request keeps its parent's other branch.
    requests = sessions((0, 0, (1, 2)), (1, 1, (1,)), (2, 0, (5,)), (3, 2, (1,)), (4, 0, (1, 2)))
    requests[2] = requests[2]._replace(subagent=True)
    assert hits("g", 4, requests)[-1] == 2
    assert hits("lru", 4, requests)[-1] == 1


def test_conversations_by_hand() -> None:
    chains = [
        (0, 1, 2),  # a conversation whose last block is partial
        (0, 7, 8),  # shares only the system prompt
        (0, 1, 3, 4),  # goes on with the first
        (0, 1, 3, 5),  # and on, its last block replaced
        (0, 1),  # asks for its beginning only
        (0, 7, 8),  # the second again
        (9,),
        (9,),  # one block is too little
    ]
    requests = [Request(float(i), chain, 4 * len(chain)) for i, chain in enumerate(chains)]
    trace = to_trace(requests)
    assert trace.sessions is None
    assert conversations(trace).tolist() == [0, 1, 0, 0, 2, 1, 3, 4]


def same_partition(one: list[int], other: list[int]) -> bool:
    pairs = set(zip(one, other, strict=True))
    return len(pairs) == len(set(one)) == len(set(other))


@pytest.mark.property
@given(case=cases())
def test_conversations_are_those_of_the_twin(case: Case) -> None:
    assert same_partition(conversations(case.trace).tolist(), sessions_of(case.requests))


@pytest.mark.property
@given(case=cases())
def test_c_where_position_costs_nothing_is_lru(case: Case) -> None:
    flat = replay(case.trace, C, **case.engine, parameters={"doubling": 1e300})
    assert flat.hit_blocks.tolist() == replay(case.trace, LRU, **case.engine).hit_blocks.tolist()


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.name)
def test_parameters_are_those_of_the_ideas(policy: Policy) -> None:
    assert ("horizon" in policy.parameters) == ("h" in policy.name)
    assert ("doubling" in policy.parameters) == ("c" in policy.name)
