"""Cache sizes and times as users write them."""

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvsim.cache.capacity import log_spaced, parse
from kvsim.traces.durations import parse_duration
from kvsim.traces.trace import TraceError

TRACE = SimpleNamespace(block_size=64, distinct_blocks=1_234)


@pytest.mark.parametrize(
    ("text", "blocks"),
    [
        ("0", 0),
        ("17", 17),
        (" 17 ", 17),
        ("10_000", 10_000),
        ("10k", 10_000),
        ("10K", 10_000),
        ("1.5M", 1_500_000),
        ("1.1k", 1_100),
        ("2G", 2_000_000_000),
        ("10%", 123),
        ("12.5 %", 154),
        ("0.001%", 1),
        ("0%", 0),
        ("100%", 1_234),
        ("150%", 1_851),
        ("inf", 1_234),
        ("INF", 1_234),
    ],
)
def test_block_counts(text: str, blocks: int) -> None:
    assert parse(text, TRACE) == blocks


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("512MiB", 512 * 2**20),
        ("512MB", 512 * 10**6),
        ("2GiB", 2 * 2**30),
        ("2gb", 2 * 10**9),
        ("100kB", 100_000),
        ("100KiB", 102_400),
        ("1TiB", 2**40),
        ("999B", 999),
    ],
)
def test_memory_sizes_round_down_to_whole_blocks(text: str, size: int) -> None:
    assert parse(text, TRACE, bytes_per_token=320) == size // (320 * 64)


@pytest.mark.parametrize(
    ("number", "blocks"), [(0, 0), (17, 17), (10.0, 10), (np.int64(3), 3), (float("inf"), 1_234)]
)
def test_numbers_are_blocks(number: float, blocks: int) -> None:
    assert parse(number, TRACE) == blocks


@pytest.mark.parametrize("wrong", [-1, 1.5, float("nan"), None, [10], {}])
def test_what_is_no_capacity_is_named(wrong: object) -> None:
    with pytest.raises(TraceError, match=r"capacity .*; give blocks"):
        parse(wrong, TRACE)  # type: ignore[arg-type]


def test_fractional_bytes_per_token_are_exact() -> None:
    assert parse("64kB", TRACE, bytes_per_token=0.5) == 2_000


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "not a capacity"),
        ("abc", "not a capacity"),
        ("-5", "not a capacity"),
        ("1e3", "not a capacity"),
        ("nan", "not a capacity"),
        ("10x", "unknown unit 'x'"),
        ("1.5", "1.5 is not a whole number of blocks"),
        ("1.2345k", "1234.5 is not a whole number of blocks"),
        ("99999999999G", "more than"),
    ],
)
def test_bad_capacity_says_which_value_and_what_would_be_right(text: str, why: str) -> None:
    with pytest.raises(TraceError, match=r"10k.*10%.*inf.*512MiB") as caught:
        parse(text, TRACE)
    assert repr(text) in str(caught.value)
    assert why in str(caught.value)


def test_memory_size_needs_the_bytes_of_a_token() -> None:
    with pytest.raises(TraceError, match=r"'512MiB'.*--bytes-per-token"):
        parse("512MiB", TRACE)
    for wrong in (0, -1, float("nan"), float("inf")):
        with pytest.raises(TraceError, match="positive"):
            parse("512MiB", TRACE, bytes_per_token=wrong)


def test_empty_trace_has_no_blocks_to_hold() -> None:
    empty = SimpleNamespace(block_size=64, distinct_blocks=0)
    assert [parse(text, empty) for text in ("10%", "inf", "0")] == [0, 0, 0]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("300", 300),
        ("0", 0),
        ("0.5", 0.5),
        ("250ms", 0.25),
        ("90s", 90),
        ("30m", 1_800),
        ("8h", 28_800),
        ("1.5h", 5_400),
        ("1d", 86_400),
        ("1h30m", 5_400),
        ("1h 30m", 5_400),
        ("inf", float("inf")),
    ],
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "h", "-3", "3 weeks", "1h30", "5%", "nan", "1h,30m"])
def test_bad_duration(text: str) -> None:
    with pytest.raises(TraceError, match=r"not a time; give seconds \(300\)"):
        parse_duration(text)


@pytest.mark.parametrize(("number", "seconds"), [(0, 0.0), (300, 300.0), (0.5, 0.5)])
def test_numbers_are_seconds(number: float, seconds: float) -> None:
    assert parse_duration(number) == seconds


@pytest.mark.parametrize("wrong", [-1, float("nan"), None, [3]])
def test_what_is_no_duration_is_named(wrong: object) -> None:
    with pytest.raises(TraceError, match="not a time"):
        parse_duration(wrong)  # type: ignore[arg-type]


@given(st.integers(1, 10**7), st.integers(0, 10**7), st.integers(2, 200))
def test_log_spaced_values_differ_and_span_the_range(low: int, extra: int, count: int) -> None:
    values = log_spaced(low, low + extra, count)
    assert len(values) == min(count, extra + 1)
    assert values == sorted(set(values))
    assert (values[0], values[-1]) == (low, low + extra)


def test_log_spaced_steps_grow_with_the_values() -> None:
    assert log_spaced(1, 1_000_000, 7) == [1, 10, 100, 1_000, 10_000, 100_000, 1_000_000]
    assert log_spaced(1, 0, 64) == []
