"""Grids of runs: policies × capacities × seeds of session starts."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor, as_completed
from os import cpu_count
from typing import Any

import pandas as pd

from kvsim.cache.bounds import BOUNDS
from kvsim.cache.engine import Policy, Result, Switches, replay
from kvsim.cache.metrics import summary
from kvsim.cache.policies import get
from kvsim.traces.arrivals import arrange
from kvsim.traces.trace import Trace


def simulate(
    trace: Trace,
    policy: str | Policy,
    capacity: int,
    *,
    ttl: float | None = None,
    switches: Switches = Switches(),
    seed: int = 0,
    parameters: Mapping[str, Any] | None = None,
) -> Result:
    """Run one policy or bound at one capacity.

    Parameters
    ----------
    trace : Trace
        The requests.
    policy : str or Policy
        A name of `kvsim.cache.policies.POLICIES` or `kvsim.cache.bounds.BOUNDS`, or a policy.
    capacity : int
        Blocks.
    ttl, switches, seed, parameters
        As for `kvsim.cache.engine.replay`; bounds take the hit cap only.

    Raises
    ------
    TraceError
        If the policy is unknown or an argument makes no sense.
    """
    if isinstance(policy, str):
        if policy in BOUNDS:
            return BOUNDS[policy](trace, capacity, switches)
        policy = get(policy)
    return replay(
        trace, policy, capacity, ttl=ttl, switches=switches, seed=seed, parameters=parameters
    )


def run(
    trace: Trace,
    policies: Sequence[str | Policy],
    capacities: Sequence[int],
    *,
    window: float | None = None,
    sessions: int | None = None,
    seeds: Sequence[int] = (0,),
    ttl: float | None = None,
    switches: Switches = Switches(),
    done: Iterable[tuple[str, int, int]] = (),
    executor: Executor | None = None,
    keep: Callable[[dict[str, Any]], None] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> pd.DataFrame:
    """Run a grid and return one row a cell, in the order policy, capacity, seed.

    Parameters
    ----------
    trace : Trace
        The requests.
    policies : sequence of str or Policy
        As for `simulate`.
    capacities : sequence of int
        Blocks.
    window : float, optional
        Seconds in which sessions start, drawn anew for each seed; with None the
        trace keeps its arrivals.
    sessions : int, optional
        Sub-sample so many sessions, drawn anew for each seed.
    seeds : sequence of int
        Of arrivals and policies.
    ttl, switches
        As for `simulate`.
    done : iterable of (policy, capacity, seed)
        Cells to leave out.
    executor : Executor, optional
        Where cells run: threads of this machine unless given (the loop lets
        go of the interpreter), or for instance ``dask_client.get_executor()``.
    keep : callable, optional
        Told each row as it is ready, so that an interrupted grid can go on.
    progress : callable, optional
        Told (cells ready, cells in all).
    """
    named = {policy if isinstance(policy, str) else policy.name: policy for policy in policies}
    grid = [(name, size, seed) for name in named for size in capacities for seed in seeds]
    left = [cell for cell in grid if cell not in set(done)]
    arranged = {
        seed: trace if window is None else arrange(trace, window, seed, sessions)
        for seed in {seed for *_, seed in left}
    }
    rows: dict[tuple[str, int, int], dict[str, Any]] = {}
    own = None if executor else ThreadPoolExecutor(cpu_count())
    pool = executor or own
    assert pool is not None
    try:
        jobs = {
            pool.submit(_cell, arranged[cell[2]], named[cell[0]], cell, ttl, switches): cell
            for cell in left
        }
        for ready, job in enumerate(as_completed(jobs), 1):
            rows[jobs[job]] = job.result()
            if keep:
                keep(rows[jobs[job]])
            if progress:
                progress(ready, len(left))
    finally:
        if own:
            own.shutdown(cancel_futures=True)
    return pd.DataFrame([rows[cell] for cell in left])


def _cell(
    trace: Trace,
    policy: str | Policy,
    cell: tuple[str, int, int],
    ttl: float | None,
    switches: Switches,
) -> dict[str, Any]:
    _, capacity, seed = cell
    result = simulate(trace, policy, capacity, ttl=ttl, switches=switches, seed=seed)
    return {"seed": seed, **summary(trace, result)}
