"""Block ids of JSON arrays as 64-bit integers, without loss."""

from collections.abc import Sequence

import msgspec
import numpy as np
from numba import njit

from kvsim.traces.radix import same_start
from kvsim.traces.trace import TraceError

NEGATIVE, HIGH, INTEGER, STRING, OTHER = 1, 2, 4, 8, 16
CLASHES = {
    NEGATIVE | HIGH: "block ids both below 0 and at or above 2^63 do not fit 64 bits; "
    "write them as strings",
    INTEGER | STRING: "some block ids are integers and some are strings; one kind a trace",
}


class BlockIds:
    """Turn raw JSON arrays of block ids into int64 arrays, equal iff the ids are.

    One trace holds either integers that fit 64 bits (signed or unsigned) or
    strings; strings are numbered by first sighting.
    """

    def __init__(self) -> None:
        self._buffer = np.empty(1024, dtype=np.int64)
        self._names: dict[str, int] = {}
        self._kinds = 0

    def parse(
        self, arrays: Sequence[bytes | msgspec.Raw], where: Sequence[str]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the ids of JSON arrays, one array after the other.

        Parameters
        ----------
        arrays : sequence of bytes
            The texts of ``k`` arrays, at least one; complete JSON, as `msgspec.Raw` is.
        where : sequence of str
            "file:line" of each, for error messages.

        Returns
        -------
        ids : int64[]
            A view, valid until the next call.
        lengths : int64[k]
            How many ids each array holds.

        Raises
        ------
        TraceError
            If an entry is no 64-bit integer and no string, or if kinds mix.
        """
        text = np.frombuffer(b"".join(arrays), dtype=np.uint8)
        if len(self._buffer) < len(text) // 2:  # an id takes two bytes or more
            self._buffer = np.empty(len(text), dtype=np.int64)
        lengths = np.empty(len(arrays), dtype=np.int64)
        kinds = self._kinds | _scan_integers(text, self._buffer, lengths)
        if (kinds & OTHER or _clash(kinds)) and len(arrays) > 1:
            each = zip(arrays, where, strict=True)
            parts = [self.parse([one], [place])[0].copy() for one, place in each]
            return np.concatenate(parts), np.array([len(part) for part in parts])
        if kinds & OTHER:
            kinds = self._kinds | STRING
            ids = self._number(arrays[0], where[0])
            lengths[0] = len(ids)
        else:
            ids = self._buffer[: lengths.sum()]
        if clash := _clash(kinds):
            raise TraceError(f"{where[0]}: {clash}")
        self._kinds = kinds
        return ids, lengths

    def _number(self, array: bytes | msgspec.Raw, where: str) -> np.ndarray:
        try:
            names = msgspec.json.decode(array, type=list[str])
        except msgspec.DecodeError as error:
            raise TraceError(
                f"{where}: hash_ids must be an array of 64-bit integers or of strings ({error})"
            ) from error
        codes = (self._names.setdefault(name, len(self._names)) for name in names)
        return np.fromiter(codes, dtype=np.int64, count=len(names))


def _clash(kinds: int) -> str | None:
    return next((text for both, text in CLASHES.items() if kinds & both == both), None)


@njit(cache=True, nogil=True)
def _scan_integers(text, out, lengths):
    """Parse JSON arrays of integers, joined; return the kinds of ids, OTHER if one is none.

    That the text is JSON is taken for granted.
    """
    count = 0
    arrays = 0
    kinds = 0
    inside = False
    before = first = 0  # where the latest array begins, in bytes and ids
    i = 0
    while i < len(text):
        c = text[i]
        if c <= 32 or (c == 44 and inside):
            i += 1
            continue
        if inside and c == 93:
            inside = False
            lengths[arrays] = count - first
            arrays += 1
            i += 1
            continue
        if not inside:
            if c != 91:  # a bare number or string
                return OTHER
            inside = True
            # Most chains repeat the one before and go on, and to compare is faster than to parse.
            same = same_start(text[before:i], text[i:])
            while same > 0 and text[i + same - 1] != 44:
                same -= 1
            ids = _commas(text[i : i + same])
            for j in range(ids):
                out[count + j] = out[first + j]
            before, first = i, count
            i += max(same, 1)
            count += ids
            continue
        negative = c == 45
        if negative:
            i += 1
        start = i
        value = np.uint64(0)
        digit = np.uint64(text[i]) - np.uint64(48)
        while digit <= np.uint64(9):
            if i - start >= 18 and value > (np.uint64(2**64 - 1) - digit) // np.uint64(10):
                return OTHER
            value = value * np.uint64(10) + digit
            i += 1
            digit = np.uint64(text[i]) - np.uint64(48)
        c = text[i]
        if i == start or (c > 32 and c != 44 and c != 93):
            return OTHER
        if value >> np.uint64(63):
            if negative and value != np.uint64(1) << np.uint64(63):
                return OTHER
            kinds |= NEGATIVE if negative else HIGH
        elif negative and value:
            kinds |= NEGATIVE
        out[count] = -np.int64(value) if negative else np.int64(value)
        count += 1
    return kinds | INTEGER if count else kinds


@njit(cache=True)
def _commas(text):
    found = 0
    for c in text:
        found += c == 44
    return found
