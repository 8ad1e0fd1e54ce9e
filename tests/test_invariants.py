"""What holds for every policy, whatever the trace: the invariants of a prefix cache.

Each example draws its policy; that the engine equals the reference is tested
for each policy by itself.
"""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from kvsim.cache.bounds import opt
from kvsim.cache.curves import lru_curve
from kvsim.cache.engine import Switches, replay
from kvsim.cache.policies import POLICIES
from kvsim.cache.reference import Policy, Request, simulate
from kvsim.cache.result import Result
from kvsim.traces.trace import Trace
from tests.naive import NAIVE, exhaustive, optimum
from tests.strategies import (
    BLOCK_SIZE,
    PARTIAL,
    Case,
    cases,
    node_switches,
    proper_switches,
    to_trace,
    traces,
)

pytestmark = pytest.mark.property
names = st.sampled_from(list(NAIVE))  # all but caches of their own
plain = st.just(Switches())
short = traces(most=12)
no_ttl = st.none()


def run(name: str, case: Case, trace: Trace | None = None, **switches: str | bool | None) -> Result:
    """Replay a case, or another trace in its cache, some switches set."""
    case = case.under(**switches)
    return replay(case.trace if trace is None else trace, POLICIES[name], **case.engine)


def found(result: Result) -> np.ndarray:
    """Return the hit blocks of each request, counted or capped."""
    return result.hit_blocks + result.capped_blocks


def uncapped(result: Result) -> int:
    """Return the hit blocks of all requests, counted or capped."""
    return int(found(result).sum())


def resident(result: Result) -> int:
    """Return the blocks that must be left after a run."""
    assert result.inserted_blocks is not None
    assert result.evicted_blocks is not None
    assert result.expired_blocks is not None
    return result.inserted_blocks - result.evicted_blocks - result.expired_blocks


def same(one: Result, other: Result) -> bool:
    """Return whether two runs agree in every count."""
    counts = vars(one).keys() - {"trace"}
    return all(np.array_equal(getattr(one, f), getattr(other, f)) for f in counts)


@given(name=names, case=cases())
def test_no_policy_beats_the_optimum(name: str, case: Case) -> None:
    trace = case.trace
    result = run(name, case, trace)
    assert uncapped(result) <= uncapped(opt(trace, case.capacity)) <= trace.infinite_hit_blocks
    assert 0 <= resident(result) <= case.capacity


@given(name=names, case=cases(ttl=no_ttl, switches=proper_switches), spare=st.integers(0, 2))
def test_room_for_all_blocks_leaves_compulsory_misses(name: str, case: Case, spare: int) -> None:
    trace = case.trace
    result = run(name, replace(case, capacity=trace.distinct_blocks + spare), trace)
    assert found(result).tolist() == trace.seen_blocks.tolist()
    assert (result.hit_tokens + result.capped_tokens).tolist() == trace.seen_tokens.tolist()
    assert (result.inserted_blocks, result.evicted_blocks) == (trace.distinct_blocks, 0)


@given(name=st.sampled_from(list(POLICIES)), case=cases(ttl=no_ttl, switches=plain))
def test_belady_beats_every_policy_that_always_admits(name: str, case: Case) -> None:
    trace = case.trace
    assert uncapped(run("belady", case, trace)) >= uncapped(run(name, case, trace))


@given(name=names, case=cases())
def test_blocks_and_tokens_add_up(name: str, case: Case) -> None:
    trace = case.trace
    table = run(name, case, trace).per_request()
    for unit in ("blocks", "tokens"):
        kinds = [table[f"{kind}_{unit}"] for kind in ("hit", "capped", "compulsory", "recompute")]
        if unit == "tokens":
            kinds.append(table["unblocked_tokens"])
        assert all((kind >= 0).all() for kind in kinds)
        assert sum(kinds).tolist() == table[unit].tolist()  # type: ignore[union-attr]


@given(name=names, case=cases())
def test_hit_cap_changes_counts_only(name: str, case: Case) -> None:
    trace = case.trace
    capped, free = (run(name, case, trace, hit_cap=cap) for cap in ("engine", None))
    limit = np.maximum(trace.input_tokens - 1, 0) // BLOCK_SIZE
    assert capped.hit_blocks.tolist() == np.minimum(found(free), limit).tolist()
    assert (capped.hit_tokens <= limit * BLOCK_SIZE).all()
    tokens = free.hit_tokens + free.capped_tokens
    assert (capped.hit_tokens + capped.capped_tokens).tolist() == tokens.tolist()
    assert found(capped).tolist() == found(free).tolist()
    assert capped.inserted_blocks == free.inserted_blocks
    assert resident(capped) == resident(free)


@given(name=names, case=cases(short))
def test_occupancy_stays_within_capacity(name: str, case: Case) -> None:
    # What is resident after each request shows at the end of a trace that stops there.
    trace = case.trace
    for stop in range(trace.requests):
        left = resident(run(name, case, trace.select(np.arange(stop))))
        assert 0 <= left <= case.capacity


@given(name=names, case=cases(ttl=st.sampled_from([0.0, 1.0, 5.0])))
def test_everything_inserted_leaves_in_the_end(name: str, case: Case) -> None:
    end = Request(arrival=1e9, chain=(), input_tokens=0, session=0)
    assert resident(run(name, replace(case, requests=(*case.requests, end)))) == 0


@given(name=names, case=cases(switches=node_switches))
def test_leaf_mode_with_pins_is_prefix_closed(name: str, case: Case) -> None:
    # Resident blocks behind a gap would be set hits and no prefix hits.
    trace = case.trace
    anywhere, leading = (run(name, case, trace, hits=hits) for hits in ("set", "prefix"))
    assert anywhere.hit_blocks.tolist() == leading.hit_blocks.tolist()
    assert anywhere.hit_tokens.tolist() == leading.hit_tokens.tolist()


@given(name=names, case=cases(switches=node_switches))
def test_reference_is_prefix_closed_and_within_capacity(name: str, case: Case) -> None:
    twin = NAIVE[name](case.requests, case.seed)
    on_request = twin.on_request

    def check(chain: list, hits: int) -> None:
        cache = twin.cache
        assert len(cache.resident) == cache.inserted - cache.evicted - cache.expired
        assert len(cache.resident) <= cache.capacity
        assert all(block.parent in cache.resident | {None} for block in cache.resident)
        on_request(chain, hits)

    twin.on_request = check  # type: ignore[method-assign]
    simulate(case.requests, policy=twin, **case.reference)


@given(name=names, case=cases(), salt=st.integers(1, 2**62))
def test_relabelling_ids_changes_nothing(name: str, case: Case, salt: int) -> None:
    def relabelled(request: Request) -> Request:
        # A bijection of 64-bit integers: the factor is odd.
        chain = ((block * (2 * salt + 1) + salt) % 2**64 - 2**63 for block in request.chain)
        return request._replace(chain=tuple(chain))

    other = replace(case, requests=tuple(relabelled(request) for request in case.requests))
    assert same(run(name, case), run(name, other))


@given(name=names, case=cases())
def test_same_seed_same_result(name: str, case: Case) -> None:
    assert same(run(name, case), run(name, case))


@given(case=cases(short, switches=proper_switches))
def test_lru_hits_never_fall_as_capacity_grows(case: Case) -> None:
    assume(case.switches.pinning or case.switches.touch_order == "deepest-oldest")
    trace = case.trace
    sizes = range(trace.distinct_blocks + 1)
    hits = [uncapped(run("lru", replace(case, capacity=size), trace)) for size in sizes]
    assert hits == sorted(hits)


@given(case=cases(switches=plain))
def test_flat_lru_equals_leaf_lru(case: Case) -> None:
    assert same(run("lru", case, eviction="flat"), run("lru", case))


@given(case=cases(short, switches=plain))
def test_curve_equals_lru_at_every_capacity(case: Case) -> None:
    trace = case.trace
    sizes = range(trace.distinct_blocks + 1)
    hits = [uncapped(run("lru", replace(case, capacity=size), trace)) for size in sizes]
    assert lru_curve(trace, case.ttl).tolist() == hits


@given(case=cases(switches=plain))
def test_optimum_equals_its_twin(case: Case) -> None:
    best = opt(case.trace, case.capacity)
    assert best.hit_blocks.tolist() == optimum(case.requests, case.capacity)
    seen = case.trace.seen_tokens
    assert best.hit_tokens.tolist() == np.minimum(best.hit_blocks * BLOCK_SIZE, seen).tolist()


@given(requests=traces(most=6), capacity=st.integers(0, 4))
def test_optimum_equals_exhaustive_search(requests: tuple[Request, ...], capacity: int) -> None:
    trace = to_trace(requests)
    assume(trace.distinct_blocks <= 9)
    assert uncapped(opt(trace, capacity)) == exhaustive(requests, capacity)


@given(case=cases(ttl=no_ttl))
def test_expanding_keeps_the_trace(case: Case) -> None:
    trace = case.trace
    single = trace.expand()
    for column in ("blocks", "distinct_blocks", "infinite_hit_blocks", "infinite_hit_tokens"):
        assert getattr(single, column) == getattr(trace, column)
    assert (single.tree.length == 1).all()
    assert lru_curve(single).tolist() == lru_curve(trace).tolist()
    assert same(opt(single, case.capacity), opt(trace, case.capacity))


@given(case=cases(switches=plain))
def test_metrics_table_equals_the_reference(case: Case) -> None:
    counts, _ = simulate(case.requests, policy=Policy(), **case.reference)
    table = run("lru", case).per_request()
    for column in counts[0]._fields if counts else ():
        assert table[column].tolist() == [getattr(count, column) for count in counts]


@given(requests=traces())
def test_partial_blocks_end_their_chains(requests: tuple[Request, ...]) -> None:
    # What the generator promises, without which the counts above would mean nothing.
    assert all(block < PARTIAL for request in requests for block in request.chain[:-1])
    assert to_trace(requests).input_tokens.tolist() == [r.input_tokens for r in requests]
