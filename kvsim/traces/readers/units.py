"""The unit of a trace's times: what its format says, and what its values say against that."""

import numpy as np

UNITS = {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}  # how many a second holds
NAMES = {"s": "seconds", "ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"}
EPOCH = (1e9, 1e10)  # seconds since 1970: the years 2001 to 2286
SHORTEST, LONGEST = 10.0, 1e8  # seconds; a trace outside is questioned
MONTH = 30 * 86400.0
# Share of all milliseconds in which a request comes, and requests to tell it from: whole seconds
# of a busy service are all taken, whole milliseconds are not.
CROWDED, ENOUGH = 0.1, 100


def in_seconds(
    times: np.ndarray,
    unit: str,
    *,
    given: str | None = None,
    sure: bool = True,
    doubt: str = "",
) -> tuple[np.ndarray, list[str]]:
    """Return times in seconds and what is to be said about their unit.

    Times since 1970 are recognised by their size and count from the first one.

    Parameters
    ----------
    times : float64[n]
        Each at least 0 and finite.
    unit : str
        A key of `UNITS`: what the format's fields say.
    given : str, optional
        A key of `UNITS` that the user says; it is not questioned.
    sure : bool
        Whether the file's fields leave no doubt about the format. Where they do, times with
        fractions are taken for seconds.
    doubt : str
        Why the format's unit may not be this file's, if there is a reason besides its times.

    Returns
    -------
    seconds : float64[n]
    notes : list of str
        At most one.
    """
    if not len(times):
        return times, []
    first, span = times.min(), float(np.ptp(times))
    since_1970 = [
        name
        for name, scale in UNITS.items()
        if given in (None, name) and EPOCH[0] <= first / scale and times.max() / scale < EPOCH[1]
    ]
    if since_1970:
        unit, why = since_1970[0], "since 1970 by their size, and count from the first one"
        times = times - first
    elif given:
        unit, why = given, ""
    else:
        unit, why = _weigh(times, span, unit, sure, doubt)
    seconds = times / UNITS[unit]
    if not why or (not span and not since_1970):
        return seconds, []
    return seconds, [
        f"Times are read as {NAMES[unit]}, {why}: the trace spans {_duration(span / UNITS[unit])}. "
        f"--time-unit ({'|'.join(UNITS)}) says otherwise."
    ]


def _weigh(times: np.ndarray, span: float, unit: str, sure: bool, doubt: str) -> tuple[str, str]:
    """Return the unit that was not given, and what questions it."""
    fractions = bool((times != np.floor(times)).any())
    if fractions and not sure and span <= MONTH:
        return "s", "because they have fractions"
    if 0 < span < SHORTEST * UNITS[unit]:
        doubt = "that makes the trace very short"
    elif span > LONGEST * UNITS[unit]:
        doubt = "that makes the trace very long"
    elif unit == "ms" and (taken := _crowded(times, span)):
        doubt = f"{taken:.0%} of all milliseconds have requests then"
    elif fractions and not sure:
        doubt = "they have fractions"
    return unit, f"the format's unit, though {doubt}" if doubt else ""


def _crowded(times: np.ndarray, span: float) -> float:
    """Return the share of whole numbers that have requests, where it is suspiciously high."""
    places = len(np.unique(times))
    share = places / (1 + span)
    return share if places >= ENOUGH and CROWDED < share <= 1 else 0.0


def _duration(seconds: float) -> str:
    for name, size in (("years", 365.25 * 86400), ("days", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:,.3g} {name}"
    return f"{seconds:.3g} s"
