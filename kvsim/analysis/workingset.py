"""How many blocks are in use: Denning's working set, and what sessions share.

Denning (1968): the working set at time t is what was touched in (t - window, t].
Its mean size over the trace follows from the times between accesses alone: a
block stays in it for min(window, time until its next access) after each access.
"""

from typing import Literal

import numpy as np
import pandas as pd
from numba import njit

from kvsim.traces.trace import Trace, accesses_by_node

Clock = Literal["seconds", "requests"]


def working_set(trace: Trace, windows: np.ndarray, clock: Clock = "seconds") -> pd.DataFrame:
    """Return the mean size of the working set, exactly, for each window.

    The mean is over the time from the first arrival to the last.

    Parameters
    ----------
    trace : Trace
        The requests.
    windows : float64[k]
        Lengths of the window, in units of the clock.
    clock : {"seconds", "requests"}
        Arrival times, or positions in processing order.

    Returns
    -------
    pandas.DataFrame
        ``window``, ``blocks``, ``tokens``; the sizes are missing if the trace lasts no time.
    """
    time = trace.arrival if clock == "seconds" else np.arange(trace.requests, dtype=np.float64)
    start, requests = accesses_by_node(trace)
    table = pd.DataFrame({"window": np.asarray(windows, dtype=np.float64)})
    lasting = float(time[-1] - time[0]) if len(time) else 0.0
    touched = time[requests]
    until_next = np.append(touched[1:], 0.0) - touched
    final = start[1:] - 1
    until_next[final] = (time[-1] if len(time) else 0.0) - touched[final]
    length = trace.tree.length.astype(np.int64)
    node_tokens = (length - 1) * trace.block_size + trace.tree.tail_tokens
    for name, size in (("blocks", length), ("tokens", node_tokens)):
        weight = np.repeat(size, np.diff(start))
        resident = _capped_sum(until_next, weight, table["window"].to_numpy())
        table[name] = resident / (lasting or np.nan)
    return table


def sharing(trace: Trace) -> dict[str, int | None]:
    """Return how many blocks, and accesses to them, sessions have in common.

    Parameters
    ----------
    trace : Trace
        The requests.

    Returns
    -------
    dict
        ``shared_blocks`` (asked for by two sessions or more) and
        ``accesses_after_another`` (block accesses whose previous access was another
        session's); None where the trace has no sessions.
    """
    if trace.sessions is None:
        return {"shared_blocks": None, "accesses_after_another": None}
    shared, accesses = _shared(trace.terminal, trace.session, trace.tree.parent, trace.tree.length)
    return {"shared_blocks": int(shared), "accesses_after_another": int(accesses)}


def _capped_sum(values: np.ndarray, weights: np.ndarray, caps: np.ndarray) -> np.ndarray:
    """Return the weighted sum of min(values, cap) for each cap."""
    ascending = np.argsort(values)
    values, weights = values[ascending], weights[ascending]
    below = np.searchsorted(values, caps, side="right")
    sums = np.concatenate(([0.0], np.cumsum(values * weights)))
    counts = np.concatenate(([0], np.cumsum(weights)))
    return sums[below] + caps * (counts[-1] - counts[below])


@njit(cache=True)
def _shared(terminal, session, parent, length):
    last = np.full(len(parent), -1, dtype=np.int32)
    common = np.zeros(len(parent), dtype=np.bool_)
    accesses = 0
    for now in range(len(terminal)):
        node = terminal[now]
        while node >= 0:
            if last[node] >= 0 and last[node] != session[now]:
                common[node] = True
                accesses += length[node]
            last[node] = session[now]
            node = parent[node]
    return (common * length).sum(), accesses
