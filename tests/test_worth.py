import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvsim.analysis.worth import worth
from kvsim.cache.curves import lru_curve
from kvsim.cache.sweep import simulate
from tests.strategies import to_trace, traces

CURVE = np.array([0, 2, 5, 5, 9, 9])  # hits of LRU with 0 to 5 blocks


@pytest.mark.parametrize(
    ("hits", "capacity", "expected"),
    [
        (5, 2, 1.0),  # LRU's own hits
        (5, 3, 1.0),  # also where a smaller cache has them too
        (9, 2, 2.0),  # LRU needs 4 blocks
        (6, 2, 2.0),  # none has 6: the next with at least as many
        (2, 2, 0.5),  # 1 block would do
        (0, 4, 0.0),
        (10, 2, float("inf")),
        (9, 50, 1.0),  # beyond the curve its last value holds
        (5, 50, 2 / 50),
    ],
)
def test_by_hand(hits, capacity, expected):
    assert worth(CURVE, hits, capacity) == expected


@given(st.lists(st.integers(0, 5), min_size=1, max_size=12), st.integers(0, 40), st.data())
def test_is_the_smallest_capacity_that_does(steps, hits, data):
    curve = np.cumsum([0, *steps])
    capacity = data.draw(st.integers(1, len(curve) + 3))
    times = worth(curve, hits, capacity)
    if hits > curve[-1]:
        assert times == float("inf")
    elif times != 1.0:
        needed = round(times * capacity)
        assert curve[needed] >= hits
        assert needed == 0 or curve[needed - 1] < hits


@given(traces(), st.integers(1, 12))
def test_lru_with_so_much_memory_has_the_hits_of_the_optimum(requests, capacity):
    trace = to_trace(requests)
    hits = int(simulate(trace, "opt", capacity).hit_blocks.sum())
    times = worth(lru_curve(trace), hits, capacity)
    needed = max(1, round(times * capacity))
    assert simulate(trace, "lru", needed).hit_blocks.sum() >= hits
    if times > 1:
        assert simulate(trace, "lru", needed - 1).hit_blocks.sum() < hits
