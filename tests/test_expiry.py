"""What a TTL removes, from one pass, against the engine and against the rule in words."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvsim.analysis.boundary import boundary
from kvsim.cache.engine import replay
from kvsim.cache.expiry import fires_from, flow, hits_differ_from
from kvsim.cache.policies import get
from kvsim.cache.reference import Block, Policy, Request, simulate
from kvsim.traces.arrivals import arrange
from tests.naive import identities
from tests.strategies import BLOCK_SIZE, to_trace, traces
from tests.traces import real

ttls = st.sampled_from([None, 0.0, 1.0, 2.0, 3.0, 8.0])


@pytest.mark.property
@given(requests=traces(), ttl=ttls)
def test_flow_equals_the_engine_at_every_capacity(requests, ttl):
    trace = to_trace(requests)
    curves = flow(trace, ttl)
    for capacity in range(trace.distinct_blocks + 1):
        run = replay(trace, get("lru"), capacity, ttl=ttl)
        assert run.hit_blocks.sum() == curves.hits[capacity]
        assert run.inserted_blocks == curves.inserted[capacity]
        assert run.evicted_blocks == curves.evicted[capacity]
        assert run.expired_blocks == curves.expired[capacity]


def lives(requests: tuple[Request, ...], ttl: float) -> list[int]:
    """Return, for each block that outlasts its TTL unasked, how many blocks are before it.

    They are the distinct blocks touched between its last use and its expiry, together
    with the shallower blocks of its own chain.
    """
    found = []
    for i, request in enumerate(requests):
        chain = identities(request)
        expiry = next(
            (j for j, later in enumerate(requests) if later.arrival - request.arrival > ttl), None
        )
        if expiry is None:
            continue
        touched = {block for later in requests[i + 1 : expiry] for block in identities(later)}
        found += [
            len(touched.union(chain[:depth]))
            for depth, block in enumerate(chain)
            if block not in touched
        ]
    return found


@pytest.mark.property
@given(requests=traces(), ttl=st.sampled_from([0.0, 1.0, 2.0, 3.0, 8.0]))
def test_a_block_lives_to_its_ttl_where_fewer_than_capacity_blocks_are_before_it(requests, ttl):
    trace = to_trace(requests)
    before = np.array(lives(requests, ttl), dtype=np.int64)
    expected = [(before < capacity).sum() for capacity in range(trace.distinct_blocks + 1)]
    assert flow(trace, ttl).expired.tolist() == expected


@pytest.mark.property
@given(requests=traces(), ttl=st.sampled_from([0.0, 1.0, 2.0, 3.0, 8.0]))
def test_ttl_hits_are_the_near_and_young_accesses(requests, ttl):
    trace = to_trace(requests)
    near_and_young = np.zeros(trace.distinct_blocks + 1, dtype=np.int64)
    last: dict = {}
    for now, request in enumerate(requests):
        chain = identities(request)
        for block in chain:
            if block in last and request.arrival - requests[last[block]].arrival <= ttl:
                before = identities(requests[last[block]])[: len(block[1]) - 1]
                between = requests[last[block] + 1 : now]
                touched = {other for later in between for other in identities(later)}
                distance = len(touched.union(before)) + 1
                near_and_young[distance:] += 1
        last |= dict.fromkeys(chain, now)
    assert flow(trace, ttl).hits.tolist() == near_and_young.tolist()


class LazyTTL(Policy):
    """Evict what has expired first, but only when room is needed."""

    def __init__(self, ttl: float) -> None:
        self.ttl = ttl

    def rank(self, block: Block) -> bool:
        requests, now = self.cache.requests, self.cache.now
        return requests[now].arrival - requests[block.last].arrival <= self.ttl


@pytest.mark.property
@given(requests=traces(), capacity=st.integers(0, 16), ttl=st.sampled_from([0.0, 1.0, 3.0]))
def test_a_ttl_looked_at_only_when_room_is_needed_is_lru(requests, capacity, ttl):
    cache = {"block_size": BLOCK_SIZE, "capacity": capacity}
    lazy, _ = simulate(requests, policy=LazyTTL(ttl), **cache)
    plain, _ = simulate(requests, policy=Policy(), **cache)
    assert lazy == plain


def test_thresholds_of_a_worked_example():
    rows = (
        Request(0.0, (1, 2), 8),
        Request(1.0, (3,), 4),
        Request(9.0, (1, 2), 8),
    )
    trace = to_trace(rows)
    with_ttl, without = flow(trace, 5.0), flow(trace)
    # At 9 s block 3 is the youngest, 1 and 2 come behind it.
    assert with_ttl.expired.tolist() == [0, 1, 2, 3]
    assert without.hits.tolist() == [0, 0, 1, 2]
    assert fires_from(with_ttl) == 1
    assert hits_differ_from(with_ttl, without) == 2
    assert fires_from(flow(trace, 100.0)) is None
    assert hits_differ_from(flow(trace, 100.0), without) is None


@pytest.mark.real
def test_where_the_ttl_binds_on_the_conversation_trace():
    trace = real("conversation")
    without, with_ttl = flow(trace), flow(trace, 300)
    first = fires_from(with_ttl)
    assert (first, hits_differ_from(with_ttl, without)) == (18_008, 18_736)
    expired = [
        replay(trace, get("lru"), capacity, ttl=300).expired_blocks
        for capacity in (first - 1, first, 20_000, 50_000)
    ]
    assert expired == [0, *with_ttl.expired[[first, 20_000, 50_000]].tolist()]
    assert fires_from(flow(trace, 3600)) is None


def exact_boundary(trace, ttl: float, share: float) -> int | None:
    """Return the capacity from which on the TTL makes the share of the removals, by replays."""
    first = None
    for capacity in range(trace.distinct_blocks, -1, -1):
        run = replay(trace, get("lru"), capacity, ttl=ttl)
        removed = run.expired_blocks + run.evicted_blocks
        if run.expired_blocks == 0 or run.expired_blocks < share * removed:
            break
        first = capacity
    return first


@pytest.mark.property
@given(requests=traces(), ttl=st.sampled_from([0.0, 1.0, 2.0, 3.0, 8.0]))
def test_the_boundary_is_where_replays_find_it(requests, ttl):
    trace = to_trace(requests)
    found = boundary(trace, [ttl])
    if not len(found):
        assert replay(trace, get("lru"), trace.distinct_blocks, ttl=ttl).expired_blocks == 0
    for share, capacity in zip(found["share"], found["capacity"], strict=True):
        assert exact_boundary(trace, ttl, share) == (None if pd.isna(capacity) else capacity)


def test_the_number_predicts_the_boundary_of_a_trace_checked_by_hand():
    # Blocks 1 2 | 3 | 4 5 6 at 0, 1, 2 s and 7 at 20 s; TTL 5 s. Nobody comes between 2 s and
    # 20 s, so what is then there has expired. Touched since, and shallower in the own chain: of
    # block 1 it is 3 4 5 6 = 4, of 2 those and 1 = 5, of 3 it is 4 5 6 = 3, of 4 none, of 5 one, of
    # 6 two. So the numbers are 0 to 5, half of them below 3; a cache of n blocks evicts 6 - n and
    # expires n.
    requests = tuple(
        Request(at, chain, BLOCK_SIZE * len(chain))
        for at, chain in ((0.0, (1, 2)), (1.0, (3,)), (2.0, (4, 5, 6)), (20.0, (7,)))
    )
    row = boundary(to_trace(requests), [5.0], [0.5]).iloc[0]
    assert (row["capacity"], row["by_number"]) == (3, 3)


@pytest.mark.real
@pytest.mark.parametrize("name", ["conversation", "synthetic", "weka"])
def test_number_and_curve_are_within_a_tenth_of_the_boundary(name):
    limits = boundary(arrange(real(name), 8 * 3600, 0), [10.0, 60.0, 300.0, 3600.0])
    off = limits["by_curve"].astype(float) / limits["capacity"].astype(float) - 1
    assert off.abs().max() < 0.1


@pytest.mark.real
def test_the_number_alone_misses_where_a_ttl_begins_to_matter_to_agents():
    limits = boundary(arrange(real("weka"), 8 * 3600, 0), [300.0], [0.05])
    assert (limits["by_number"] < limits["capacity"] / 5).all()
