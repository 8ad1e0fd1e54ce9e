"""When sessions arrive: synthetic starts, sub-samples, cuts by time."""

from dataclasses import replace

import numpy as np

from kvsim.traces.trace import Trace, TraceError


def interleave(trace: Trace, window: float, seed: int, sessions: int | None = None) -> Trace:
    """Start each session at a seeded uniform time in ``[0, window)``.

    Session traces hold no arrival times across sessions, so a result that
    depends on them must state window and seed.

    Parameters
    ----------
    trace : Trace
        A trace whose sessions each start at time 0.
    window : float
        Seconds; 0 starts every session at 0.
    seed : int
        Of the sub-sample and the starts.
    sessions : int, optional
        Keep this many sessions, drawn without replacement.

    Raises
    ------
    TraceError
        If the trace has no sessions, or fewer than asked for.
    """
    if trace.sessions is None:
        raise TraceError(f"{trace.name}: no sessions in it, so no arrivals can be drawn")
    if window < 0:
        raise TraceError(f"window is {window} s; it must be at least 0")
    known = np.unique(trace.session)
    draw, starts = (np.random.default_rng([seed, stream]) for stream in (0, 1))
    kept = known
    if sessions is not None:
        if not 0 < sessions <= len(known):
            raise TraceError(f"{sessions} sessions asked for; {trace.name} has {len(known)}")
        kept = np.sort(draw.choice(known, sessions, replace=False))
        trace = trace.select(np.isin(trace.session, kept))
    # One start a session of the whole trace: a session's start does not depend on the sample.
    # Multiples of 1/1024 s keep differences of whole-second times exact, as TTLs compare them.
    start = np.zeros(known[-1] + 1)
    start[known] = np.floor(1024 * starts.uniform(0.0, window, len(known))) / 1024
    note = f"Arrivals synthesised: uniform session starts in {window:g} s, seed {seed}."
    arranged = trace.sorted_by(trace.arrival + start[trace.session])
    return replace(arranged, notes=(*trace.notes, note))


def cut(trace: Trace, start: float = 0.0, stop: float = np.inf) -> Trace:
    """Keep the requests that arrive in ``[start, stop)`` seconds."""
    return trace.select((trace.arrival >= start) & (trace.arrival < stop))
