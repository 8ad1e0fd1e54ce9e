"""What users write for times: ``300``, ``90s``, ``8h``, ``1h30m``, ``inf``."""

import re
from fractions import Fraction

from kvsim.traces.trace import TraceError

SECONDS = {
    "ms": Fraction(1, 1000),
    "": Fraction(1),
    "s": Fraction(1),
    "m": Fraction(60),
    "h": Fraction(3600),
    "d": Fraction(86400),
}
DIGITS = r"(\d+(?:\.\d*)?|\.\d+)"
UNITS = r"(ms|s|m|h|d)"
PART = re.compile(rf"{DIGITS}\s*{UNITS}?")
DURATION = re.compile(rf"{DIGITS}|({DIGITS}\s*{UNITS}\s*)+")
FORMS = "seconds (300) or a number with ms, s, m, h or d (90s, 8h, 1h30m)"


def parse_duration(duration: str | float) -> float:
    """Return the seconds that a duration stands for.

    Parameters
    ----------
    duration : str, int or float
        Seconds, or text such as ``300``, ``90s``, ``8h``, ``1h30m``, ``inf``.

    Raises
    ------
    TraceError
        If it is no duration, or negative.
    """
    if isinstance(duration, int | float):
        if not duration >= 0:
            raise _bad(duration)
        return float(duration)
    if not isinstance(duration, str):
        raise _bad(duration)
    cleaned = duration.strip().lower()
    if cleaned == "inf":
        return float("inf")
    if DURATION.fullmatch(cleaned) is None:
        raise _bad(duration)
    parts = PART.findall(cleaned)
    return float(sum(Fraction(number) * SECONDS[unit] for number, unit in parts))


def _bad(duration: object) -> TraceError:
    return TraceError(f"duration {duration!r}: not a time; give {FORMS}")
