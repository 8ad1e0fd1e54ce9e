"""SGLang's cache: a worked example, its twin on random traces, and what its own code gives."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvsim.cache.bounds import opt
from kvsim.cache.engine import Switches, replay
from kvsim.cache.policies import POLICIES
from kvsim.cache.reference import Request
from kvsim.traces.trace import TraceError
from tests.naive_sglang import STRATEGIES, simulate
from tests.strategies import BLOCK_SIZE, Case, cases, to_trace
from tests.traces import real

every_strategy = pytest.mark.parametrize("name", STRATEGIES)


def replayed(name: str, capacity: int, *chains: tuple[int, ...]) -> list[int]:
    """Return the hit blocks of each chain, a request a second."""
    requests = [
        Request(float(time), chain, len(chain) * BLOCK_SIZE) for time, chain in enumerate(chains)
    ]
    return replay(to_trace(requests), POLICIES[name], capacity).hit_blocks.tolist()


def hits(name: str, capacity: int, *chains: tuple[int, ...]) -> list[int]:
    """Return the same for a strategy of SGLang's, which its twin confirms."""
    found = replayed(name, capacity, *chains)
    requests = [Request(0.0, chain, len(chain) * BLOCK_SIZE) for chain in chains]
    assert simulate(requests, capacity, name)[0] == found
    return found


def test_whole_nodes_go() -> None:
    # [3 4] needs one block more than is free. LRU would take block 2 alone, and [1] would hit.
    chains = [(1, 2), (3, 4), (1,)]
    assert hits("sglang-lru", 3, *chains) == [0, 0, 0]
    assert replayed("lru", 3, *chains) == [0, 0, 1]


def test_a_split_renews_the_half_that_was_not_asked_for() -> None:
    # [1] splits [1 2]: the half [2] counts as used by the third request, so [3] goes for [4].
    chains = [(1, 2), (3,), (1,), (4,), (1, 2)]
    assert hits("sglang-lru", 3, *chains) == [0, 0, 1, 0, 2]
    assert replayed("lru", 3, *chains) == [0, 0, 1, 0, 1]


def test_hits_come_before_recency() -> None:
    # [1] has two hits, [2] one: for [3] LRU evicts [1], the other two [2].
    chains = [(1,), (1,), (2,), (3,), (1,)]
    assert hits("sglang-lru", 2, *chains) == [0, 1, 0, 0, 0]
    assert hits("sglang-lfu", 2, *chains) == [0, 1, 0, 0, 1]
    assert hits("sglang-slru", 2, *chains) == [0, 1, 0, 0, 1]


@every_strategy
@pytest.mark.property
@given(case=cases(ttl=st.none(), switches=st.just(Switches())), surplus=st.booleans())
def test_equals_its_twin(name: str, case: Case, surplus: bool) -> None:
    result = replay(case.trace, POLICIES[name], case.capacity, parameters={"surplus": surplus})
    expected, inserted, evicted = simulate(case.requests, case.capacity, name, surplus)
    assert result.hit_blocks.tolist() == expected
    assert (result.inserted_blocks, result.evicted_blocks) == (inserted, evicted)
    tokens = [
        min(blocks * BLOCK_SIZE, request.input_tokens)
        for blocks, request in zip(expected, case.requests, strict=True)
    ]
    assert result.hit_tokens.tolist() == tokens


@every_strategy
@pytest.mark.property
@given(case=cases(ttl=st.none(), switches=st.just(Switches())))
def test_is_a_cache(name: str, case: Case) -> None:
    trace = case.trace
    result = replay(trace, POLICIES[name], case.capacity)
    assert result.hit_blocks.sum() <= opt(trace, case.capacity).hit_blocks.sum()
    assert 0 <= result.inserted_blocks - result.evicted_blocks <= case.capacity
    ample = replay(trace, POLICIES[name], trace.distinct_blocks)
    assert ample.hit_blocks.tolist() == trace.seen_blocks.tolist()
    assert ample.hit_tokens.tolist() == trace.seen_tokens.tolist()


@every_strategy
def test_takes_no_switches_but_the_hit_cap(name: str) -> None:
    trace = to_trace([Request(0.0, (1, 2), 8), Request(1.0, (1, 2), 8)])
    capped = replay(trace, POLICIES[name], 9, switches=Switches(hit_cap="engine"))
    assert capped.hit_blocks.tolist() == [0, 1]
    assert capped.capped_blocks.tolist() == [0, 1]
    for refused in ({"ttl": 3.0}, {"switches": Switches(pinning=False)}):
        with pytest.raises(TraceError, match="a cache of its own"):
            replay(trace, POLICIES[name], 9, **refused)


@pytest.mark.real
def test_hits_as_many_as_sglangs_own_code() -> None:
    # SGLang 0.5.23's RadixCache, driven with one id a token: 59,657.
    trace = real("conversation")
    assert replay(trace, POLICIES["sglang-lru"], 10_000).hit_blocks.sum() == 59_657
