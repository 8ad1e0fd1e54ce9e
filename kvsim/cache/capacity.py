"""What users write for cache sizes: ``10k``, ``10%``, ``512MiB``, ``inf``."""

import re
from fractions import Fraction
from typing import Protocol

import numpy as np

from kvsim.cache import models
from kvsim.traces.trace import TraceError

COUNTS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9}
BYTES = {"b": 1} | {
    f"{prefix}{unit}": base**power
    for power, prefix in enumerate("kmgt", start=1)
    for unit, base in (("b", 1000), ("ib", 1024))
}
LARGEST = 2**53
NUMBER = re.compile(r"(\d+(?:\.\d*)?|\.\d+)\s*([a-z]*|%)")
CAPACITY_FORMS = (
    "blocks (10000, 10k, 1.5M), a share of the distinct blocks (10%), inf, "
    "or 512MiB with --bytes-per-token or --model"
)


class Sized(Protocol):
    """What of a trace a capacity depends on."""

    @property
    def block_size(self) -> int:
        """Tokens a block holds."""

    @property
    def distinct_blocks(self) -> int:
        """Distinct blocks of the trace."""


def parse(capacity: str | float, trace: Sized, bytes_per_token: float | str | None = None) -> int:
    """Return the blocks that a capacity stands for.

    Parameters
    ----------
    capacity : str, int or float
        A whole number of blocks, as text with an optional k, M or G (thousand,
        million, milliard); a percentage of the trace's distinct blocks,
        rounded down but at least 1 block unless it is 0 %; ``inf``, which is
        all distinct blocks; or a memory size in B, kB, KiB, MB, MiB, GB, GiB,
        TB or TiB, rounded down to whole blocks. Case does not matter.
    trace : Trace
        Gives the block size (tokens) and the distinct blocks.
    bytes_per_token : float or str, optional
        KV bytes of one token, or a model as `kvsim.cache.models.named_bytes` takes it
        (``"llama-3.1-8b"``, ``"llama-3.1-8b:fp8"``); needed for a memory size.

    Raises
    ------
    TraceError
        If `capacity` has none of these forms, or the model is not known.
    """
    if not isinstance(capacity, str | int | float | np.integer | np.floating):
        raise _bad(capacity, f"a {type(capacity).__name__} is not a capacity")
    text = str(capacity)
    cleaned = text.strip().replace("_", "").lower()
    if cleaned == "inf":
        return trace.distinct_blocks
    match = NUMBER.fullmatch(cleaned)
    if match is None:
        raise _bad(text, "not a capacity")
    number, unit = Fraction(match[1]), match[2]
    if unit == "%":
        blocks = int(number * trace.distinct_blocks / 100)
        return max(blocks, 1) if number and trace.distinct_blocks else blocks
    if unit in BYTES:
        size = number * BYTES[unit]
        return _checked(int(size / _block_bytes(text, trace, bytes_per_token)), text)
    if unit not in COUNTS:
        raise _bad(text, f"unknown unit {match[2]!r}")
    count = number * COUNTS[unit]
    if count.denominator != 1:
        raise _bad(text, f"{float(count):g} is not a whole number of blocks")
    return _checked(int(count), text)


def log_spaced(low: int, high: int, count: int) -> list[int]:
    """Return `count` different integers from `low` to `high`, evenly spaced on a log scale.

    Where the logarithm's steps are below 1 they are stretched to 1; where
    the range holds fewer than `count` integers, all of them are returned.

    Parameters
    ----------
    low, high : int
        Both ends, included; ``1 <= low``. An empty range gives an empty list.
    count : int
        How many, at least 2.
    """
    if high - low + 1 <= count:
        return list(range(low, high + 1))
    steps = np.arange(count)
    ideal = np.rint(np.geomspace(low, high, count)).astype(np.int64)
    return [int(value) for value in np.maximum.accumulate(ideal - steps) + steps]


def _block_bytes(text: str, trace: Sized, bytes_per_token: float | str | None) -> Fraction:
    if isinstance(bytes_per_token, str):
        bytes_per_token = models.named_bytes(bytes_per_token)
    if bytes_per_token is None:
        raise TraceError(
            f"capacity {text!r}: a memory size needs --bytes-per-token, the KV bytes of one token, "
            "or --model"
        )
    if not 0 < bytes_per_token < float("inf"):
        raise TraceError(f"bytes per token {bytes_per_token}: must be a positive number")
    return Fraction(bytes_per_token) * trace.block_size


def _checked(blocks: int, text: str) -> int:
    if blocks > LARGEST:
        raise _bad(text, f"more than {LARGEST} blocks")
    return blocks


def _bad(text: object, why: str) -> TraceError:
    return TraceError(f"capacity {text!r}: {why}; give {CAPACITY_FORMS}")
