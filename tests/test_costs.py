import numpy as np
import pytest

from kvsim.cache.costs import LLAMA_3_70B, CostModel, prefill_cost, recompute_cost, saving
from kvsim.cache.engine import Switches, replay
from kvsim.cache.policies.lru import POLICY as LRU
from kvsim.cache.reference import Request
from tests.strategies import to_trace

# 20 FLOPs a token, 4 a token attended to.
SMALL = CostModel("small", parameters=10, layers=1, width=1)


def test_flops_by_hand() -> None:
    # Tokens attend to 1, 2 and 3 tokens: 3 * 20 + 4 * (1 + 2 + 3).
    assert SMALL.flops(np.array([0, 1, 3])).tolist() == [0, 24, 84]


def test_doubling_is_where_attention_costs_as_much_as_the_weights() -> None:
    assert SMALL.doubling == 5
    assert SMALL.attention * SMALL.doubling == SMALL.linear


def test_example_model_counts_its_weights() -> None:
    layer = 8192 * (2 * 8192 + 2 * 1024 + 3 * 28672)
    assert pytest.approx(80 * layer, rel=1e-5) == LLAMA_3_70B.parameters
    assert pytest.approx(52_224, abs=1) == LLAMA_3_70B.doubling


def requests() -> list[Request]:
    return [
        Request(0.0, (1, 2), 8),
        Request(1.0, (3,), 4),
        Request(2.0, (1, 2, 4), 13),  # the last token has no block
    ]


def test_costs_by_hand() -> None:
    trace = to_trace(requests())
    result = replay(trace, LRU, 2)  # block 3 pushes out block 2
    assert result.hit_tokens.tolist() == [0, 0, 4]
    # Tokens 1..n cost 20 n + 2 n (n + 1): 8 cost 304, 4 cost 120, 13 cost 624.
    assert prefill_cost(trace, result, SMALL).tolist() == [304, 120, 624 - 120]
    # Seen before: 8 tokens, of which 4 are hit; neither block 4 nor the token without a block.
    assert recompute_cost(trace, result, SMALL).tolist() == [0, 0, 304 - 120]


def test_capped_hits_are_prefilled_but_not_recomputed() -> None:
    trace = to_trace([Request(0.0, (1, 2), 8), Request(1.0, (1, 2), 8)])
    result = replay(trace, LRU, 2, switches=Switches(hit_cap="engine"))
    assert result.capped_tokens.tolist() == [0, 4]
    assert prefill_cost(trace, result, SMALL).tolist() == [304, 304 - 120]
    assert recompute_cost(trace, result, SMALL).tolist() == [0, 0]


def test_saving() -> None:
    cost, baseline = np.array([3.0, 3.0]), np.array([2.0, 2.0])
    assert saving(cost, baseline) == -0.5
    assert saving(baseline, baseline) == 0
    assert saving(cost, np.zeros(2)) is None
