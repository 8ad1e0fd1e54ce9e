"""Denning's working set against a slow twin, and what sessions share."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvsim.analysis.workingset import sharing, working_set
from kvsim.cache.reference import Request
from tests.naive import identities, uses_of
from tests.strategies import BLOCK_SIZE, to_trace, traces


def mean_size(requests, times, window):
    """Return blocks and tokens in the working set on average, block by block."""
    end = times[-1]
    blocks = tokens = 0.0
    size = {
        block: min(BLOCK_SIZE, request.input_tokens - depth * BLOCK_SIZE)
        for request in requests
        for depth, block in enumerate(identities(request))
    }
    for block, uses in uses_of(requests).items():
        covered, reach = 0.0, -np.inf
        for use in uses:
            until = min(times[use] + window, end)
            covered += max(0.0, until - max(times[use], reach))
            reach = max(reach, until)
        blocks += covered
        tokens += covered * size[block]
    return blocks / (end - times[0]), tokens / (end - times[0])


@pytest.mark.property
@pytest.mark.parametrize("clock", ["seconds", "requests"])
@given(requests=traces(), window=st.sampled_from([0.0, 0.5, 1.0, 2.0, 3.0, 9.0, 1e9]))
def test_working_set_equals_its_definition(clock, requests, window):
    times = [r.arrival for r in requests] if clock == "seconds" else list(range(len(requests)))
    row = working_set(to_trace(requests), np.array([window]), clock).iloc[0]
    if len(times) == 0 or times[-1] == times[0]:
        assert np.isnan(row["blocks"])
    else:
        expected = mean_size(requests, times, window)
        assert (row["blocks"], row["tokens"]) == pytest.approx(expected)


def test_working_set_worked_example():
    rows = (
        Request(0.0, (1, 2), 8),
        Request(4.0, (1,), 4),
        Request(10.0, (3,), 4),
    )
    # Block 1 is in the set during [0, 3) and [4, 7), block 2 during [0, 3), block 3 for no time.
    table = working_set(to_trace(rows), np.array([3.0, 100.0]))
    assert table["blocks"].tolist() == pytest.approx([0.9, 2.0])
    assert table["tokens"].tolist() == pytest.approx([3.6, 8.0])


def test_sharing_counts_blocks_and_accesses_of_another_session():
    rows = (
        Request(0.0, (1, 2), 8, session=0),
        Request(1.0, (1, 3), 8, session=1),
        Request(2.0, (1, 3), 8, session=1),
        Request(3.0, (1, 2), 8, session=0),
    )
    assert sharing(to_trace(rows)) == {"shared_blocks": 1, "accesses_after_another": 2}
    alone = tuple(row._replace(session=-1) for row in rows)
    assert sharing(to_trace(alone)) == {"shared_blocks": None, "accesses_after_another": None}
    local = tuple(row._replace(namespace=row.session) for row in rows)
    assert sharing(to_trace(local)) == {"shared_blocks": 0, "accesses_after_another": 0}
