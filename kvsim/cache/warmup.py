"""Where counting begins: requests before it only warm the cache up."""

import re
from fractions import Fraction

import numpy as np

from kvsim.traces.durations import parse_duration
from kvsim.traces.trace import Trace, TraceError

FORMS = "a share of the requests (50%), a time since the first (2h), or a request number (6000)"
SHARE = re.compile(r"(\d+(?:\.\d*)?|\.\d+)\s*%")


def first_measured(trace: Trace, measure_from: str | int) -> int:
    """Return the row of the first request that counts.

    Parameters
    ----------
    trace : Trace
        The requests.
    measure_from : str or int
        ``"50%"`` leaves out the first half of the requests (rounded down),
        ``"2h"`` those that arrive earlier than two hours after the first, and a
        whole number so many requests.

    Raises
    ------
    TraceError
        If `measure_from` has none of these forms, or nothing would be left to count.
    """
    text = str(measure_from).strip().lower()
    if share := SHARE.fullmatch(text):
        row = int(trace.requests * Fraction(share[1]) / 100)
    elif text.isdigit():
        row = int(text)
    else:
        row = _row_at(trace, text, measure_from)
    if row and row >= trace.requests:
        raise TraceError(
            f"measure from {measure_from}: nothing is left of {trace.requests:,} requests to count"
        )
    return row


def _row_at(trace: Trace, text: str, measure_from: str | int) -> int:
    try:
        after = parse_duration(text)
    except TraceError:
        raise TraceError(f"measure from {measure_from!r}: not a start; give {FORMS}") from None
    start = trace.arrival[0] if trace.requests else 0.0
    return int(np.searchsorted(trace.arrival, start + after))
