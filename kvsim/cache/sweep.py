"""Grids of runs: policies × capacities × seeds of session starts."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor, as_completed
from dataclasses import replace
from os import cpu_count
from typing import Any

import pandas as pd

from kvsim.cache.bounds import BOUNDS
from kvsim.cache.capacity import parse
from kvsim.cache.engine import Switches, replay
from kvsim.cache.policies import chosen, get
from kvsim.cache.policy import Policy
from kvsim.cache.result import Result
from kvsim.cache.warmup import first_measured
from kvsim.traces.arrivals import arrange
from kvsim.traces.durations import parse_duration
from kvsim.traces.trace import Trace, on_one_clock


def simulate(
    trace: Trace,
    policy: str | Policy,
    capacity: int | str,
    *,
    ttl: float | str | None = None,
    switches: Switches = Switches(),
    seed: int = 0,
    parameters: Mapping[str, Any] | None = None,
    bytes_per_token: float | str | None = None,
    measure_from: str | int = 0,
) -> Result:
    """Run one policy or bound at one capacity.

    Parameters
    ----------
    trace : Trace
        The requests.
    policy : str or Policy
        A name of `kvsim.cache.policies.POLICIES` or `kvsim.cache.bounds.BOUNDS`, or a policy.
    capacity : int or str
        Blocks, or as on the command line: ``"10k"``, ``"10%"``, ``"1GiB"``, ``"inf"``.
    ttl : float or str, optional
        Seconds, or a duration such as ``"5m"``, after its last touch a block lives.
    switches, seed, parameters
        As for `kvsim.cache.engine.replay`; bounds take the hit cap only.
    bytes_per_token : float or str, optional
        KV bytes of a token, or a model's name, for a capacity given as memory.
    measure_from : str or int
        Count only from there on, see `kvsim.cache.warmup.first_measured`.

    Raises
    ------
    TraceError
        If the policy is unknown, the trace is on no common clock, or an argument makes no sense.
    """
    on_one_clock(trace)
    blocks = parse(capacity, trace, bytes_per_token)
    first = first_measured(trace, measure_from)
    lifetime = None if ttl is None else parse_duration(ttl)
    if isinstance(policy, str) and policy.lower() in BOUNDS:
        return BOUNDS[policy.lower()](trace, blocks, switches, measure_from=first)
    if not isinstance(policy, Policy):
        policy = get(policy)
    run = replay(
        trace, policy, blocks, ttl=lifetime, switches=switches, seed=seed, parameters=parameters
    )
    return replace(run, first=first)


def run(
    trace: Trace,
    policies: Sequence[str | Policy],
    capacities: Sequence[int | str],
    *,
    window: float | str | None = None,
    sessions: int | None = None,
    seeds: Sequence[int] = (0,),
    ttl: float | str | None = None,
    switches: Switches = Switches(),
    bytes_per_token: float | str | None = None,
    measure_from: str | int = 0,
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
        As for `simulate`; one given twice runs once, two of one name are refused.
    capacities : sequence of int or str
        As for `simulate`.
    window : float or str, optional
        As `kvsim.traces.arrivals.arrange` takes it, drawn anew for each seed; with None the
        trace keeps its arrivals.
    sessions : int, optional
        Sub-sample so many sessions, drawn anew for each seed.
    seeds : sequence of int
        Of arrivals and policies.
    ttl, switches, bytes_per_token, measure_from
        As for `simulate`.
    done : iterable of (policy, capacity, seed)
        Cells to leave out, capacities in blocks.
    executor : Executor, optional
        Where cells run: threads of this machine unless given (the loop lets
        go of the interpreter), or for instance ``dask_client.get_executor()``.
    keep : callable, optional
        Told each row as it is ready, so that an interrupted grid can go on.
    progress : callable, optional
        Told (cells ready, cells in all).
    """
    named = chosen(policies)
    sizes = [parse(capacity, trace, bytes_per_token) for capacity in capacities]
    grid = [(name, size, seed) for name in named for size in sizes for seed in seeds]
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
            pool.submit(
                _cell, arranged[cell[2]], named[cell[0]], cell, ttl, switches, measure_from
            ): cell
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
            own.shutdown(wait=False, cancel_futures=True)
    return pd.DataFrame([rows[cell] for cell in left])


def _cell(
    trace: Trace,
    policy: str | Policy,
    cell: tuple[str, int, int],
    ttl: float | str | None,
    switches: Switches,
    measure_from: str | int,
) -> dict[str, Any]:
    _, capacity, seed = cell
    result = simulate(
        *(trace, policy, capacity),
        ttl=ttl,
        switches=switches,
        seed=seed,
        measure_from=measure_from,
    )
    return {"seed": seed, **result.row()}
