"""Where a TTL takes over from the capacity, and how well one number says so.

An idle block sinks in LRU's stack. It lives to its TTL exactly where the distinct blocks touched in
one TTL after its last use, together with the shallower blocks of its own chain, number fewer than
the capacity. That number, one for each time that a block is left alone for a TTL, is all that
the rule needs: no capacity is simulated.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from kvsim.analysis.workingset import working_set
from kvsim.cache.expiry import flow
from kvsim.traces.trace import Trace

SHARES = (0.05, 0.5, 0.95)  # of the removals: where a TTL begins to matter, rules, is all
PREDICTIONS = {
    "by_number": "the number alone",
    "by_curve": "the number and LRU's curve",
    "by_working_set": "mean working set",
}


def boundary(trace: Trace, ttls: Sequence[float], shares: Sequence[float] = SHARES) -> pd.DataFrame:
    """Return from which capacity on a TTL makes a share of the removals, exactly and predicted.

    Parameters
    ----------
    trace : Trace
        The requests.
    ttls : sequence of float
        Seconds after its last touch a block lives; one that never fires has no row.
    shares : sequence of float
        Of the removals, in (0, 1].

    Returns
    -------
    DataFrame
        A row a TTL and share, capacities in blocks: ``capacity``, from which on the TTL makes at
        least the share of the removals (missing where it never does), and three predictions:
        ``by_number``, the share's quantile of the number above; ``by_curve``, where the numbers
        below the capacity reach the share of all numbers or of what LRU without a TTL removes,
        whichever are more; ``by_working_set``, Denning's mean working set of one TTL.
    """
    inserted = flow(trace).inserted
    everything = np.arange(trace.distinct_blocks + 1)
    removed_by_lru = inserted - np.minimum(everything, trace.distinct_blocks)
    finite = [ttl for ttl in ttls if np.isfinite(ttl)]
    means = working_set(trace, np.array(finite))["blocks"]
    rows = []
    for ttl, mean in zip(finite, means, strict=True):
        limited = flow(trace, ttl)
        expired = limited.expired
        if expired[-1] == 0:
            continue
        for share in shares:
            rows.append(
                {
                    "ttl_s": ttl,
                    "share": share,
                    "capacity": onward(expired, share * (expired + limited.evicted)),
                    "by_number": int(np.argmax(expired >= share * expired[-1])),
                    "by_curve": onward(expired, share * np.maximum(removed_by_lru, expired[-1])),
                    "by_working_set": round(mean),
                }
            )
    columns = ["ttl_s", "share", "capacity", *PREDICTIONS]
    return pd.DataFrame(rows, columns=columns).astype({"capacity": "Int64", "by_curve": "Int64"})


def onward(expired: np.ndarray, wanted: np.ndarray) -> int | None:
    """Return the capacity from which on something expires, and no less than `wanted`."""
    short = np.flatnonzero((expired == 0) | (expired < wanted))
    first = int(short[-1]) + 1 if len(short) else 0
    return first if first < len(expired) else None
