"""Gaps, idle times, duty and attribution: worked examples, a slow twin, and the real corpus."""

from dataclasses import replace
from math import nan

import numpy as np
import pandas as pd
import pytest
from hypothesis import given

from kvsim.analysis import gaps
from kvsim.cache.engine import Switches, replay
from kvsim.cache.policies import get
from kvsim.cache.reference import Request
from kvsim.traces.arrivals import arrange
from kvsim.traces.trace import SESSION, Trace
from tests.naive import identities
from tests.strategies import BLOCK_SIZE, Case, cases, to_trace
from tests.traces import real

# Session 0: 10 s of service, a sub-agent beside it, a late request. Session 1: no service times.
SESSIONS = (
    Request(0.0, (1, 2), 8, session=0, service=10.0),
    Request(4.0, (1, 3), 8, session=0, service=2.0, subagent=True),
    Request(5.0, (7,), 4, session=1),
    Request(20.0, (1, 2, 4), 12, session=0, service=5.0),
    Request(25.0, (7, 8), 8, session=1),
    Request(25.0, (7, 9), 8, session=2),
)


@pytest.fixture
def weka() -> Trace:
    return real("weka")


def test_gap_is_since_the_previous_arrival_of_the_session_sub_agents_included():
    assert gaps.gap(to_trace(SESSIONS)).tolist() == pytest.approx(
        [nan, 4, nan, 16, 20, nan], nan_ok=True
    )


def test_idle_is_since_the_latest_end_so_far():
    # The sub-agent arrives 6 s before the first request ends; that end, 10, counts at 20.
    assert gaps.idle(to_trace(SESSIONS)).tolist() == pytest.approx(
        [nan, -6, nan, 10, 20, nan], nan_ok=True
    )


def test_duty_is_the_union_of_service_over_the_span():
    table = gaps.sessions(to_trace(SESSIONS))
    assert table.loc[0, ["requests", "untimed", "span_s"]].tolist() == [3, 0, 25]
    assert table.loc[0, ["duty_low", "duty_high"]].tolist() == [15 / 25, 15 / 25]


def test_missing_service_times_give_bounds_of_the_duty():
    table = gaps.sessions(to_trace(SESSIONS))
    # Without its service time the first request may have run until the second arrived.
    assert table.loc[1, ["untimed", "span_s", "duty_low", "duty_high"]].tolist() == [2, 20, 0, 1]
    assert np.isnan(table.loc[2, "duty_low"])  # no span


def test_an_untimed_request_is_not_cut_short_by_a_sub_agent():
    rows = (
        Request(0.0, (1,), 4, session=0),
        Request(1.0, (2,), 4, session=0, service=1.0, subagent=True),
        Request(8.0, (3,), 4, session=0, service=2.0),
    )
    table = gaps.sessions(to_trace(rows))
    assert table.loc[0, ["duty_low", "duty_high"]].tolist() == [0.3, 1.0]


def test_a_gap_of_exactly_ten_seconds_stays_so_under_synthetic_starts():
    rows = tuple(Request(10.0 * i, (1,) * (i + 1), 4 * (i + 1), session=0) for i in range(50))
    for seed in range(20):
        arranged = arrange(replace(to_trace(rows), clock=SESSION), 8 * 3600, seed)
        assert set(gaps.gap(arranged)[1:]) == {10.0}


def test_by_gap_worked_example():
    trace = to_trace(SESSIONS)
    # With 2 blocks the requests at 4, 20 and the last find their first block; block 2 is gone at
    # 20 s and block 7 at 25 s.
    table = gaps.by_gap(trace, replay(trace, get("lru"), 2)).set_index("gap")
    assert table["requests"].tolist() == [1, 2, 0, 0, 0, 0, 3]
    assert table["prefilled_tokens"].sum() == trace.input_tokens.sum() - 12
    assert table["recomputed_tokens"].tolist() == [0, 4 + 4, 0, 0, 0, 0, 0]
    assert table["recomputed_tokens_share"].sum() == 1


def test_buckets_hold_their_lower_bound():
    times = np.cumsum([0.0, 9.999, *gaps.EDGES[1:-1]])
    rows = tuple(Request(float(time), (1,), 4, session=0) for time in times)
    trace = to_trace(rows)
    run = replay(trace, get("lru"), 0)
    assert gaps.by_gap(trace, run)["requests"].tolist() == [1] * 7
    assert gaps.by_age(trace, run)["prefilled_blocks"].tolist() == [1] * 7 + [0]


def test_without_sessions_there_is_no_data():
    trace = to_trace(tuple(request._replace(session=-1) for request in SESSIONS))
    assert np.isnan(gaps.gap(trace)).all()
    assert np.isnan(gaps.idle(trace)).all()
    assert gaps.sessions(trace).empty
    table = gaps.by_gap(trace, replay(trace, get("lru"), 2))
    assert len(table) == 7
    assert table.drop(columns="gap").isna().all(axis=None)
    assert gaps.by_age(trace, replay(trace, get("lru"), 2))["prefilled_tokens_share"].sum() == 1


def ages(case: Case, found: list[int]) -> tuple[dict[str, int], dict[str, int]]:
    """Return blocks and tokens missed again, by age, block by block."""
    last: dict[object, float] = {}
    blocks, tokens = dict.fromkeys(gaps.BUCKETS, 0), dict.fromkeys(gaps.BUCKETS, 0)
    for request, hits in zip(case.requests, found, strict=True):
        for depth, block in enumerate(identities(request)):
            if depth >= hits and block in last:
                age = request.arrival - last[block]
                bucket = next(
                    name
                    for name, edge in zip(gaps.BUCKETS, gaps.EDGES[1:], strict=True)
                    if age < edge
                )
                blocks[bucket] += 1
                tokens[bucket] += min(BLOCK_SIZE, request.input_tokens - depth * BLOCK_SIZE)
        last |= dict.fromkeys(identities(request), request.arrival)
    return blocks, tokens


@pytest.mark.property
@given(case=cases())
def test_attribution_adds_up_and_ages_are_those_of_the_blocks(case: Case):
    case = case.under(hits="prefix")
    # Long enough to reach several buckets, and their bounds exactly.
    requests = tuple(r._replace(arrival=r.arrival * 10) for r in case.requests)
    case = replace(case, requests=requests, ttl=None)
    trace = case.trace
    run = replay(trace, get("lru"), **case.engine)
    prefilled = int((trace.input_tokens - run.hit_tokens).sum())
    again = int(gaps.recomputed_tokens(trace, run).sum())
    by_age = gaps.by_age(trace, run)
    assert by_age["prefilled_tokens"].sum() == prefilled
    assert by_age["recomputed_tokens"].sum() == again
    blocks, tokens = ages(case, (run.hit_blocks + run.capped_blocks).tolist())
    assert by_age["prefilled_blocks"].tolist()[:6] == list(blocks.values())
    assert by_age["recomputed_tokens"].tolist()[:6] == list(tokens.values())
    if trace.sessions is not None:
        by_gap = gaps.by_gap(trace, run)
        assert by_gap["requests"].sum() == trace.requests
        assert by_gap["prefilled_tokens"].sum() == prefilled
        assert by_gap["recomputed_tokens"].sum() == again


@pytest.mark.property
@given(case=cases())
def test_duty_bounds_are_in_order(case: Case):
    unknown = tuple(
        request._replace(service=nan if i % 3 == 0 else request.service)
        for i, request in enumerate(case.requests)
    )
    table = gaps.sessions(to_trace(unknown)).dropna()
    assert (table["duty_low"] <= table["duty_high"] + 1e-12).all()
    assert table[["duty_low", "duty_high"]].ge(0).all(axis=None)
    assert table[["duty_low", "duty_high"]].le(1 + 1e-12).all(axis=None)
    full = gaps.sessions(case.trace).dropna()
    assert full["duty_low"].tolist() == full["duty_high"].tolist()


@pytest.mark.real
def test_the_weka_corpus(weka: Trace):
    table, gap = gaps.sessions(weka), gaps.gap(weka)
    assert table["untimed"].sum() == 4_312
    assert np.isnan(gap).sum() == len(table) == 692
    assert np.nanmedian(gap) == 17
    assert np.sum(gap == 10) == 2_472


@pytest.mark.real
def test_first_requests_recompute_nothing_where_ids_are_session_local(weka: Trace):
    arranged = arrange(weka, 8 * 3600, 0)
    table = gaps.by_gap(arranged, replay(arranged, get("lru"), 20_000, switches=Switches()))
    shares = table.set_index("gap").filter(like="_share")
    assert table["recomputed_tokens"].iloc[-1] == 0
    pd.testing.assert_series_equal(shares.sum(), pd.Series(1.0, shares.columns))
