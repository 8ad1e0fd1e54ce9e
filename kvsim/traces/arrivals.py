"""When requests arrive: the one place that gives sessions their starts; cuts by time."""

from dataclasses import replace

import numpy as np

from kvsim.traces.durations import parse_duration
from kvsim.traces.trace import DRAWN, SESSION, SESSION_CLOCK_NOTE, Trace, TraceError

DEFAULT_WINDOW = "8h"


def arrange(
    trace: Trace,
    window: float | str = DEFAULT_WINDOW,
    seed: int = 0,
    sessions: int | None = None,
) -> Trace:
    """Start each session at a seeded uniform time in ``[0, window)``.

    Session traces hold no arrival times across sessions, so a result that
    depends on them must state window and seed. A trace with recorded arrivals
    keeps them.

    Parameters
    ----------
    trace : Trace
        Its `clock` says whether there are starts to draw.
    window : float or str
        Seconds, or a duration such as ``"8h"``; 0 starts every session at 0.
    seed : int
        Of the sub-sample and the starts.
    sessions : int, optional
        Keep this many sessions, drawn without replacement.

    Raises
    ------
    TraceError
        If starts were drawn before, the window makes no sense, or more
        sessions are asked for than there are.
    """
    if trace.clock == DRAWN:
        raise TraceError(
            f"{trace.name}: its session starts are drawn already; "
            "open it with window=None to draw others"
        )
    known = np.unique(trace.session) if trace.sessions is not None else np.zeros(0, dtype=int)
    draw, starts = (np.random.default_rng([seed, stream]) for stream in (0, 1))
    kept = trace
    if sessions is not None:
        if not 0 < sessions <= len(known):
            raise TraceError(f"{sessions} sessions asked for; {trace.name} has {len(known)}")
        chosen = np.sort(draw.choice(known, sessions, replace=False))
        kept = trace.select(np.isin(trace.session, chosen))
    if trace.clock != SESSION:
        return kept
    length = parse_duration(window)
    if not 0 <= length < np.inf:
        raise TraceError(f"window is {window}; sessions need a finite time to start in, such as 8h")
    if trace.requests == 0:
        return replace(kept, clock=DRAWN)
    # One start a session of the whole trace: a session's start does not depend on the sample.
    # Multiples of 1/1024 s keep differences of whole-second times exact, as TTLs compare them.
    start = np.zeros(known[-1] + 1)
    start[known] = np.floor(1024 * starts.uniform(0.0, length, len(known))) / 1024
    arranged = kept.sorted_by(kept.arrival + start[kept.session])
    notes = [note for note in trace.notes if note != SESSION_CLOCK_NOTE]
    notes.append(
        f"Session starts drawn uniformly in {length:g} s, seed {seed} (--window, --seed): "
        "the trace records none."
        if length
        else "Every session starts at 0, as asked (--window 0)."
    )
    return replace(arranged, clock=DRAWN, notes=tuple(notes))


def cut(trace: Trace, start: float = 0.0, stop: float = np.inf) -> Trace:
    """Keep the requests that arrive in ``[start, stop)`` seconds."""
    return trace.select((trace.arrival >= start) & (trace.arrival < stop))
