"""Block ids of JSON arrays as 64-bit integers, without loss."""

import msgspec
import numpy as np
from numba import njit

from kvsim.trace import TraceError

NEGATIVE, HIGH, OTHER = 1, 2, 4
CLASH = "block ids both below 0 and at or above 2^63 do not fit 64 bits; write them as strings"


class BlockIds:
    """Turn raw JSON arrays of block ids into int64 arrays, equal iff the ids are.

    One trace holds either integers that fit 64 bits (signed or unsigned) or
    strings; strings are numbered by first sighting.
    """

    def __init__(self) -> None:
        self._buffer = np.empty(1024, dtype=np.int64)
        self._names: dict[str, int] = {}
        self._flags = 0
        self._integers = False

    def parse(self, raw: bytes | memoryview) -> np.ndarray:
        """Return the ids of one JSON array as int64 (a view, valid until the next call).

        Raises
        ------
        TraceError
            If an entry is no 64-bit integer and no string, or if kinds mix.
        """
        text = np.frombuffer(raw, dtype=np.uint8)
        if len(self._buffer) < len(text):
            self._buffer = np.empty(2 * len(text), dtype=np.int64)
        count, flags = _scan_integers(text, self._buffer)
        if flags & OTHER:
            return self._parse_slowly(raw)
        self._flags |= flags
        if self._flags == NEGATIVE | HIGH:
            raise TraceError(CLASH)
        self._integers |= count > 0
        if self._integers and self._names:
            raise TraceError("block ids are integers here and strings elsewhere; one kind a trace")
        return self._buffer[:count]

    def _parse_slowly(self, raw: bytes | memoryview) -> np.ndarray:
        try:
            names = msgspec.json.decode(raw, type=list[str])
        except msgspec.DecodeError as error:
            raise TraceError(
                f"hash_ids must be an array of 64-bit integers or of strings ({error})"
            ) from error
        if self._integers:
            raise TraceError("block ids are strings here and integers elsewhere; one kind a trace")
        codes = (self._names.setdefault(name, len(self._names)) for name in names)
        return np.fromiter(codes, dtype=np.int64, count=len(names))


@njit(cache=True, nogil=True)
def _scan_integers(text, out):
    """Parse a JSON array of integers; return (count, flags), OTHER if it is none."""
    count = 0
    flags = 0
    if text[0] != 91:  # a bare number or string
        return 0, OTHER
    i = 1
    last = len(text) - 1  # of the closing bracket
    while i < last:
        c = text[i]
        if c <= 32 or c == 44:
            i += 1
            continue
        negative = c == 45
        if negative:
            i += 1
        start = i
        value = np.uint64(0)
        digit = np.uint64(text[i]) - np.uint64(48)
        while digit <= np.uint64(9):
            if i - start >= 18 and value > (np.uint64(2**64 - 1) - digit) // np.uint64(10):
                return 0, OTHER
            value = value * np.uint64(10) + digit
            i += 1
            digit = np.uint64(text[i]) - np.uint64(48)
        if i == start or (text[i] > 32 and text[i] != 44 and i < last):
            return 0, OTHER
        if value >> np.uint64(63):
            if negative and value != np.uint64(1) << np.uint64(63):
                return 0, OTHER
            flags |= NEGATIVE if negative else HIGH
        elif negative and value:
            flags |= NEGATIVE
        out[count] = -np.int64(value) if negative else np.int64(value)
        count += 1
    return count, flags
