"""Counting from a later request on: every total, the curve and the optimum."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from kvsim.analysis.gaps import by_age, by_gap
from kvsim.cache import reference
from kvsim.cache.bounds import infinite, opt
from kvsim.cache.costs import prefill_cost, recompute_cost
from kvsim.cache.curves import curve, lru_curve
from kvsim.cache.engine import replay
from kvsim.cache.policies import POLICIES
from kvsim.cache.reference import Request
from kvsim.cache.sweep import run as sweep
from kvsim.cache.sweep import simulate
from kvsim.cache.warmup import first_measured
from kvsim.traces.trace import TraceError
from tests.naive import NAIVE, exhaustive
from tests.strategies import BLOCK_SIZE, Case, cases, node_switches, to_trace, traces

starts = st.integers(0, 24)
COUNTS = ("hit_blocks", "compulsory_blocks", "recompute_blocks", "hit_tokens", "recompute_tokens")


@pytest.mark.property
@given(case=cases(switches=node_switches), start=starts)
def test_totals_are_the_references_from_there_on(case: Case, start: int) -> None:
    assume(start < len(case.requests))
    counts, _ = reference.simulate(
        case.requests, policy=NAIVE["lru"](case.requests, case.seed), **case.reference
    )
    run = simulate(
        *(case.trace, "lru", case.capacity),
        ttl=case.ttl,
        switches=case.switches,
        measure_from=start,
    )
    row = run.row()
    assert row["requests"] == len(case.requests) - start
    for name in COUNTS:
        assert row[name] == sum(getattr(one, name) for one in counts[start:])
    assert row["blocks"] == sum(len(request.chain) for request in case.requests[start:])
    if row["blocks"]:
        assert run.hit_ratio == row["hit_ratio"] == row["hit_blocks"] / row["blocks"]


@pytest.mark.property
@given(requests=traces(most=6), capacity=st.integers(0, 4), start=st.integers(0, 5))
def test_optimum_equals_exhaustive_search(
    requests: tuple[Request, ...], capacity: int, start: int
) -> None:
    trace = to_trace(requests)
    assume(trace.distinct_blocks <= 9)
    assume(start < len(requests))
    best = opt(trace, capacity, measure_from=start)
    assert best.hit_blocks.sum() == exhaustive(requests, capacity, start)


@pytest.mark.property
@given(name=st.sampled_from([*POLICIES]), case=cases(switches=node_switches), start=starts)
def test_no_policy_beats_the_optimum(name: str, case: Case, start: int) -> None:
    assume(start < len(case.requests))
    trace = case.trace
    run = simulate(trace, name, case.capacity, seed=case.seed, measure_from=start)
    best = opt(trace, case.capacity, measure_from=start)
    found = (run.hit_blocks + run.capped_blocks)[start:].sum()
    assert found <= best.hit_blocks[start:].sum()
    assert best.hit_blocks.sum() <= infinite(trace, 0, measure_from=start).row()["hit_blocks"]


@pytest.mark.property
@given(case=cases(), start=starts)
def test_curve_counts_from_there_on(case: Case, start: int) -> None:
    assume(start < len(case.requests))
    trace = case.trace
    whole = lru_curve(trace, case.ttl, measure_from=start)
    for capacity in range(trace.distinct_blocks + 1):
        run = replay(trace, POLICIES["lru"], capacity, ttl=case.ttl)
        assert run.hit_blocks[start:].sum() == whole[capacity]


def test_every_form_of_a_start() -> None:
    requests = [Request(10.0 + 2 * i, (1,), BLOCK_SIZE) for i in range(10)]
    trace = to_trace(requests)
    for start, row in (("50%", 5), ("29%", 2), ("0%", 0), (3, 3), ("3", 3), ("4s", 2), ("5s", 3)):
        assert first_measured(trace, start) == row
    for wrong in ("half", "-3", "3x", -3):
        with pytest.raises(TraceError, match=r"not a start; give a share .*50%.*2h.*6000"):
            first_measured(trace, wrong)
    for late in ("100%", "1h", 10):
        with pytest.raises(TraceError, match="nothing is left of 10 requests"):
            first_measured(trace, late)
    assert first_measured(to_trace([]), "50%") == 0


def test_hand_worked_example() -> None:
    # A, B, A, B with room for one block: LRU hits nothing. The optimum keeps A or B from the
    # first two requests for one hit; measured from the last request on, it keeps B.
    requests = [Request(float(i), (name,), BLOCK_SIZE) for i, name in enumerate((1, 2, 1, 2))]
    trace = to_trace(requests)
    assert opt(trace, 1).hit_blocks.tolist() == [0, 0, 1, 0]
    assert opt(trace, 1, measure_from=3).hit_blocks.tolist() == [0, 0, 0, 1]
    assert simulate(trace, "lru", 2, measure_from="50%").hit_ratio == 1.0
    table = sweep(trace, ["lru", "opt"], [1, "100%"], measure_from=3)
    assert table["hit_ratio"].tolist() == [0.0, 1.0, 1.0, 1.0]
    assert curve(trace, [1, "inf"], measure_from=3)["hit_ratio"].tolist() == [0.0, 1.0]


@pytest.mark.property
@given(case=cases(switches=node_switches), start=starts)
def test_gaps_and_costs_count_from_there_on(case: Case, start: int) -> None:
    assume(start < len(case.requests))
    run = simulate(case.trace, "lru", case.capacity, switches=case.switches, measure_from=start)
    row = run.row()
    ages = by_age(run.trace, run)
    assert ages["recomputed_tokens"].sum() == row["recompute_tokens"]
    assert ages["prefilled_tokens"].sum() == row["tokens"] - row["hit_tokens"]
    if run.trace.sessions is not None:
        gaps = by_gap(run.trace, run)
        assert gaps["requests"].sum() == row["requests"]
        assert gaps["recomputed_tokens"].sum() == row["recompute_tokens"]
    for cost in (prefill_cost, recompute_cost):
        whole = cost(run.trace, replace(run, first=0))
        assert cost(run.trace, run).tolist() == whole[start:].tolist()


def test_result_says_what_it_counts() -> None:
    trace = replace(to_trace([Request(float(i), (1,), 4) for i in range(4)]), notes=("As told.",))
    text = repr(simulate(trace, "lru", 1, measure_from=2))
    assert text == (
        "<Result random, lru at 1 blocks: hit ratio 100.00% of blocks, "
        "counted from request 2>\nnote: As told."
    )
    assert np.isclose(simulate(trace, "lru", 1).hit_ratio, 0.75)  # type: ignore[arg-type]
