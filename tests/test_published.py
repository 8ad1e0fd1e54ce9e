"""Published KV policies and liveness on examples worked by hand, beside LRU."""

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

from kvsim.cache.engine import replay
from kvsim.cache.policies import (
    continuum,
    kvflow,
    length_aware,
    liveness,
    lpc,
    marconi,
    pgdsf,
    rlt,
    t_lru,
    unicache,
    wa,
)
from kvsim.cache.policies.lru import POLICY as LRU
from kvsim.cache.policy import Policy
from kvsim.cache.reference import Request
from kvsim.traces.trace import TraceError
from tests.strategies import to_trace

Row = tuple[float, int, tuple[int, ...]]
A, B, C, D = (1,), (2,), (3,), (4,)


def hits(policy: Policy, capacity: int, rows: list[Row], seed: int = 0, **parameters: Any):
    """Return the hit blocks of requests (arrival, session, chain) of full blocks of 4 tokens."""
    requests = [
        Request(arrival, chain, 4 * len(chain), session=session) for arrival, session, chain in rows
    ]
    result = replay(to_trace(requests), policy, capacity, seed=seed, parameters=parameters)
    return result.hit_blocks.tolist()


def test_length_aware_evicts_the_latest_block_among_equals() -> None:
    # All were used once: LRU drops block 1, LengthAware block 3, which is second in its request.
    rows = [(0.0, 0, (1,)), (1.0, 1, (2, 3)), (2.0, 2, (4,)), (3.0, 0, (1,))]
    assert hits(LRU, 3, rows) == [0, 0, 0, 0]
    assert hits(length_aware.POLICY, 3, rows, step=4) == [0, 0, 0, 1]


def test_pgdsf_keeps_what_cost_more() -> None:
    # A token of the first request cost 1 + 8 / 2 / 4 = 2, of the second 1 + 4 / 2 / 4 = 1.5.
    rows = [(0.0, 0, (1, 2)), (1.0, 1, (3,)), (2.0, 2, (4,)), (3.0, 0, (1, 2))]
    assert hits(LRU, 3, rows) == [0, 0, 0, 1]
    assert hits(pgdsf.POLICY, 3, rows, knee=4.0) == [0, 0, 0, 2]


def test_t_lru_takes_what_a_branch_can_spare() -> None:
    # A branch of 8 tokens may miss 4 of them, so it spares its second block, and both
    # branches lose that before either loses its first.
    rows = [(0.0, 0, (1, 2)), (1.0, 1, (3, 4)), (2.0, 2, (5, 6)), (3.0, 0, (1, 2))]
    assert hits(LRU, 4, rows) == [0, 0, 0, 0]
    assert hits(t_lru.POLICY, 4, rows, ahead=0.0, budget=4.0) == [0, 0, 0, 1]
    assert hits(t_lru.POLICY, 4, rows, ahead=4.0, budget=4.0) == [0, 0, 0, 0]


def test_rlt_draws_among_the_unmarked() -> None:
    # The third request starts a phase and drops the first or the second block at random.
    # The fourth drops the other one, for the third is marked.
    rows = [(0.0, 0, (1,)), (1.0, 1, (2,)), (2.0, 2, (3,))]
    first = [hits(rlt.POLICY, 2, [*rows, (3.0, 0, (1,))], seed)[-1] for seed in range(16)]
    assert set(first) == {0, 1}
    marked = [*rows, (3.0, 3, (4,)), (4.0, 2, (3,))]
    assert {hits(rlt.POLICY, 2, marked, seed)[-1] for seed in range(16)} == {1}


def test_wa_evicts_the_class_less_likely_to_be_reused() -> None:
    # At 3 s first turns return after (10 + 2) / 2 = 6 s: P(B) = exp(-2/6) - exp(-12/6) = 0.581.
    # Second turns after 10 s: P(A) = exp(-0.1) - exp(-1.1) = 0.572, although A is younger.
    rows = [(0.0, 0, A), (1.0, 1, B), (2.0, 0, A), (3.0, 2, C), (4.0, 1, B)]
    assert hits(LRU, 2, rows) == [0, 0, 1, 0, 0]
    assert hits(wa.POLICY, 2, rows, window=10.0, prior=10.0) == [0, 0, 1, 0, 1]


def test_unicache_keeps_the_template() -> None:
    # A is a template at offset 0: score 1. B's session is idle for 1 s: 1 - Phi(0) = 0.5.
    rows = [(0.0, 0, A), (0.0, 1, A), (0.0, 2, B), (1.0, 3, C), (1.0, 4, A)]
    assert hits(LRU, 2, rows) == [0, 1, 0, 0, 0]
    assert hits(unicache.POLICY, 2, rows, mu=0.0, sigma=1.0) == [0, 1, 0, 0, 1]


def test_marconi_weighs_recency_and_flops() -> None:
    # Block 2: 1 / 2 + 2 (1 + 4/4) / 2 = 2.5; block 3: 1 / 1 + 2 (1 + 0) / 2 = 2.
    rows = [(0.0, 0, (1, 2)), (1.0, 1, (3,)), (2.0, 2, (4,)), (3.0, 0, (1, 2))]
    assert hits(marconi.POLICY, 3, rows, alpha=2.0, doubling=4.0) == [0, 0, 0, 2]
    assert hits(marconi.POLICY, 3, rows, alpha=0.0) == hits(LRU, 3, rows) == [0, 0, 0, 1]


@pytest.mark.parametrize(("time", "expected"), [(1.5, 1), (9.0, 0)])
def test_continuum_unpins_the_session_that_arrived_last(time: float, expected: int) -> None:
    # The one gap of 1 s ends its bin at 1.21 s, so A and B are pinned for so long: 5 - 1.21 > 0.
    # At 1.5 s B's session goes, which came later; at 9 s nothing is pinned and A goes.
    rows = [(0.0, 0, A), (1.0, 0, A), (1.0, 1, B), (time, 2, C), (time + 0.1, 0, A)]
    assert hits(LRU, 2, rows) == [0, 1, 0, 0, 0]
    assert hits(continuum.POLICY, 2, rows, wait=5.0, rate=1e9) == [0, 1, 0, 0, expected]


def test_kvflow_counts_steps_of_the_session() -> None:
    # When C needs room, B is one request of its session away and A two.
    rows = [(0.0, 1, B), (1.0, 0, A), (2.0, 2, C), (3.0, 0, D), (4.0, 1, B), (5.0, 0, A)]
    assert hits(LRU, 2, rows) == [0, 0, 0, 0, 0, 0]
    assert hits(kvflow.POLICY, 2, rows) == [0, 0, 0, 0, 1, 0]


@pytest.mark.parametrize(("prior", "expected"), [(10.0, 1), (0.1, 0)])
def test_lpc_weighs_the_prediction_by_idle_time(prior: float, expected: int) -> None:
    # A continues: p = 0.9, after 2 s of 10 s 0.88; B does not: p = 0.1, after 1 s 0.09.
    # With gaps of 0.1 s A is as good as dead: 1.9e-8 against B's 5e-6.
    rows = [(0.0, 0, A), (1.0, 1, B), (2.0, 2, C), (3.0, 0, A)]
    assert hits(LRU, 2, rows) == [0, 0, 0, 0]
    assert hits(lpc.POLICY, 2, rows, prior=prior) == [0, 0, 0, expected]


def test_gittins_index_by_hand() -> None:
    # Half of the blocks are used in the first bin of 0.25 s, none later. Just touched
    # they are half-way in it: 0.5 uses in 0.125 s, of which the used stay half.
    hazard, index = np.zeros(liveness.BINS), np.empty(liveness.BINS)
    hazard[0] = 0.5
    liveness.gittins(hazard, index)
    assert_allclose(index[:2], [0.5 / (0.125 * 0.75), 0.0])
    # Used for certain in the second bin: waiting for it is worth more the nearer it is.
    hazard[:2] = 0.0, 1.0
    liveness.gittins(hazard, index)
    assert_allclose(index[:2], [1 / (0.125 + 0.075 / 2), 1 / (0.0375 / 2)])


def test_hazard_counts_what_waits_in_a_bin_by_half() -> None:
    uses, waiting, hazard = (np.zeros(liveness.BINS) for _ in range(3))
    uses[0], waiting[0], waiting[1] = 1.0, 2.0, 2.0
    liveness.hazards(uses, waiting, hazard.copy(), 1e-12, hazard)
    assert_allclose(hazard[0], 1 / (1 + 0.5 * 2 + 2))


def test_fill_takes_a_share_of_the_last() -> None:
    assert liveness.fill(np.array([4.0, 2.0]), np.array([2.0, 2.0]), 3.0) == 5.0
    assert liveness.fill(np.array([4.0, 2.0]), np.array([2.0, 2.0]), np.inf) == 6.0


def test_liveness_leaves_lru_where_it_thrashes() -> None:
    # 20 sessions in turn, room for 10: LRU never hits, and any 10 of them could stay.
    rows = [(float(i), i % 20, (i % 20,)) for i in range(400)]
    assert sum(hits(LRU, 10, rows)) == 0
    late = hits(liveness.POLICY, 10, rows, period=16)[200:]
    assert sum(late) >= 80


def test_liveness_is_lru_where_that_hits() -> None:
    rng = np.random.default_rng(0)
    names = rng.geometric(0.2, 600)
    rows = [(float(i), int(name), (int(name),)) for i, name in enumerate(names)]
    assert hits(liveness.POLICY, 8, rows, period=16) == hits(LRU, 8, rows)


@pytest.mark.parametrize(
    ("policy", "parameters"),
    [
        (pgdsf.POLICY, {"knee": 0.0}),
        (wa.POLICY, {"window": 0.0}),
        (wa.POLICY, {"prior": -1.0}),
        (unicache.POLICY, {"sigma": 0.0}),
        (unicache.POLICY, {"period": 0}),
        (marconi.POLICY, {"doubling": 0.0}),
        (continuum.POLICY, {"rate": 0.0}),
        (lpc.POLICY, {"accuracy": 1.0}),
        (lpc.POLICY, {"prior": 0.0}),
    ],
)
def test_parameters_that_make_no_sense(policy: Policy, parameters: dict[str, float]) -> None:
    (name,) = parameters
    with pytest.raises(TraceError, match=name):
        hits(policy, 2, [(0.0, 0, A)], **parameters)
