"""The published traces, for tests that skip where one is not fetched."""

from functools import cache

import pytest

from kvsim.traces.download import FetchError
from kvsim.traces.opening import open_trace
from kvsim.traces.trace import Trace


@cache
def real(name: str) -> Trace:
    """Return a published trace, or skip the test where it is not fetched; bad content fails."""
    try:
        return open_trace(name, window=None)
    except FetchError as error:
        pytest.skip(str(error))
