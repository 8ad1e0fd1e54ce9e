"""Units that cannot be mistaken: of time, of blocks; and Qwen-Bailian's rows."""

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from kvsim.traces.readers import read
from kvsim.traces.readers.sizes import BlockSize
from kvsim.traces.readers.units import UNITS, in_seconds
from kvsim.traces.trace import Trace, TraceError
from tests.trace_files import mooncake_row, nested, session, weka_request

Write = Callable[..., Path]
DAY = 86400


def timed(write: Write, times: Sequence[float], size: int = 512, **options: Any) -> Trace:
    return read(write([mooncake_row([1], time, size) for time in times]), **options)


def noted(trace: Trace) -> str:
    """Return the one note about times, "" where there is none."""
    notes = [note for note in trace.notes if "--time-unit" in note]
    assert len(notes) <= 1
    return "".join(notes)


# --- time ---------------------------------------------------------------------------------------


def test_mooncakes_own_files_are_in_milliseconds_without_a_word(write: Write) -> None:
    trace = timed(write, [0, 3000, 3000, 3_600_000])
    assert trace.arrival.tolist() == [0, 3, 3, 3600]
    assert trace.notes == ()


def test_times_all_alike_have_no_unit(write: Write) -> None:
    assert not noted(timed(write, [0, 0, 0]))
    assert not noted(timed(write, []))


@pytest.mark.parametrize("unit", UNITS)
def test_the_unit_given_is_taken_without_a_word(write: Write, unit: str) -> None:
    trace = timed(write, [0, 1, 2.5], size=16, block_size=16, time_unit=unit)
    assert trace.arrival.tolist() == [time / UNITS[unit] for time in (0, 1, 2.5)]
    assert not noted(trace)


@pytest.mark.parametrize(
    ("times", "arrival", "said"),
    [
        ([0, 3600], [0, 3.6], "milliseconds, the format's unit, though that makes .* very short"),
        ([0, 9 * 10**14], [0, 9e11], "though that makes the trace very long: .* years"),
        ([0.5, 61.114], [0.5, 61.114], "seconds, because they have fractions: .* 60.6 s"),
        ([0.5, 1e10], [0.0005, 1e7], "milliseconds, .* though they have fractions"),
        (range(100, 20_100), None, "milliseconds, .* though 100% of all milliseconds"),
    ],
)
def test_times_that_speak_against_the_unit_are_questioned(
    write: Write, times: Sequence[float], arrival: list[float] | None, said: str
) -> None:
    trace = timed(write, times)
    np.testing.assert_allclose(trace.arrival, arrival or np.array(times) / 1000)
    assert re.search(said, noted(trace))


def test_blocks_that_are_not_mooncakes_make_the_unit_doubtful(write: Write) -> None:
    trace = timed(write, [0, 7200 * 1000], size=16, block_size=16)
    assert trace.arrival.tolist() == [0, 7200]
    assert "milliseconds, the format's unit, though blocks are not of 512" in noted(trace)


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("fields", ["mooncake", "bailian"])
def test_times_since_1970_are_known_by_their_size(write: Write, unit: str, fields: str) -> None:
    start = 1_700_000_000
    times = [(start + second) * int(UNITS[unit]) for second in (0, 60, 7200)]
    if fields == "mooncake":
        trace = timed(write, times)
    else:
        trace = read(write([chat(i, -1, time) for i, time in enumerate(times)]))
    assert trace.arrival.tolist() == [0, 60, 7200]
    assert "since 1970" in noted(trace)


def test_delays_are_in_milliseconds(write: Write) -> None:
    first = mooncake_row([1], 1000, session_id="a")
    later = mooncake_row([1], session_id="a", delay_ms=20_500.5)
    del later["timestamp"]
    path = write([first, later])
    trace = read(path, rows="cumulative")
    assert trace.arrival.tolist() == [1, 21.5005]
    assert not noted(trace)
    trace = read(path, rows="cumulative", time_unit="s")
    np.testing.assert_allclose(trace.arrival, [1000, 1020.5005])


def test_the_unit_of_sessions_scales_all_their_times(write: Write) -> None:
    requests = [weka_request([1], 1000, api_time=500), nested(60_000, 0, 2000)]
    trace = read(write([session(requests)]), time_unit="ms")
    assert trace.arrival.tolist() == [1, 60, 62]
    assert trace.service[0] == 0.5
    assert not noted(trace)


@given(st.lists(st.integers(0, 10**15), min_size=1), st.sampled_from(list(UNITS)))
@pytest.mark.property
def test_whole_numbers_stay_in_the_formats_unit_below_1970s(times: list[int], unit: str) -> None:
    values = np.array([*times, 0], dtype=np.float64)  # a trace that starts at 0
    seconds, notes = in_seconds(values, unit)
    assert seconds.tolist() == (values / UNITS[unit]).tolist()
    span = float(np.ptp(seconds))
    assert bool(notes) or span == 0 or 10 <= span <= 1e8


# --- blocks -------------------------------------------------------------------------------------


SIZES = np.arange(1, 500)


@given(st.integers(1, 60), st.lists(st.integers(1, 200), min_size=1), st.booleans())
@pytest.mark.property
def test_named_sizes_are_those_that_fit(size: int, inputs: list[int], partial: bool) -> None:
    """Against trying every size."""
    tokens = np.array(inputs)
    lengths = -(-tokens // size)
    floor = lengths == tokens // SIZES[:, None]
    ceil = lengths == -(-tokens // SIZES[:, None])
    fits = (ceil | (floor & (not partial))).all(axis=1)
    assume(not fits.all())
    sizes = BlockSize(int(SIZES[~fits][0]), 1, partial=partial)
    with pytest.raises(TraceError) as raised:
        sizes.check(lengths, inputs, ["here"] * len(inputs), "in")
    named = str(raised.value).split("requests: ")[1].split(" (--block")[0]
    fitting = SIZES[fits].tolist()
    powers = [one for one in fitting if one & (one - 1) == 0]
    if "or more" in named:
        assert fitting == list(range(int(named.split()[0]), 500))
    elif "to" in named:
        assert ([fitting[0], fitting[-1]], powers) == (list(map(int, named.split(" to "))), [])
    else:
        assert list(map(int, named.split(", "))) == (powers or fitting)


def test_a_wrong_block_size_names_those_that_fit(write: Write) -> None:
    rows = [mooncake_row(range(n), size=16, input_length=16 * n - 3) for n in range(2, 40)]
    with pytest.raises(
        TraceError,
        match=r":1: 2 hash_ids for input_length 29 \(sizes that fit the "
        r"first 38 requests: 16 \(--block-size\)\); blocks of 512 .* exactly 1",
    ):
        read(write(rows))
    assert read(write(rows), block_size=16).requests == 38
    with pytest.raises(TraceError, match=r":2: .* which fits no block size that fits the other"):
        read(write([mooncake_row([1]), mooncake_row([1, 2], input_length=20)]))
    sized = session([weka_request(range(n), size=16) for n in range(1, 40)], size=64)
    with pytest.raises(TraceError, match=r"first 39 requests: 16\); blocks of 64"):
        read(write([sized]))
    del sized["block_size"]
    with pytest.raises(TraceError, match=r"first 39 requests: 16 \(--block-size\)"):
        read(write([sized]))
    assert read(write([sized]), block_size=16).block_size == 16


def test_rows_state_their_block_size(write: Write) -> None:
    rows = [mooncake_row([1, 2], 0, 16, block_size=16), mooncake_row([1, 2, 3], 20_000, 16)]
    for trace in (read(write(rows)), read(write(rows), block_size=16)):
        assert trace.block_size == 16
        assert trace.seen_blocks.tolist() == [0, 2]
    with pytest.raises(TraceError, match=r":1: block_size 16; .* with 32 \(--block-size\)"):
        read(write(rows), block_size=32)
    with pytest.raises(TraceError, match=r":3: block_size 8; the trace is read with 16,"):
        read(write([*rows, mooncake_row([1], 0, 8, block_size=8)]))
    with pytest.raises(TraceError, match=r":2: block_size 16; the trace is read with 512,"):
        read(write([mooncake_row([1]), rows[0]]))
    with pytest.raises(TraceError, match=r":1: block_size is 0; it must be at least 1"):
        read(write([mooncake_row([1], block_size=0)]))


# --- partial blocks -----------------------------------------------------------------------------


def test_partial_blocks_that_go_on(write: Write) -> None:
    lengths = [(2, 600), (2, 600), (3, 1536), (2, 1024), (2, 600), (2, 700)]
    rows = [
        mooncake_row(range(blocks), 20_000 * i, input_length=tokens)
        for i, (blocks, tokens) in enumerate(lengths)
    ]
    trace = read(write(rows))
    # Only a prompt that ends in as many tokens hits the partial block.
    assert trace.seen_tokens.tolist() == [0, 600, 512, 1024, 600, 512]
    assert trace.chain_tokens.tolist() == [tokens for _, tokens in lengths]
    assert trace.distinct_blocks == 5
    assert any(note.startswith("2 ") and "--partial-blocks" in note for note in trace.notes)
    with pytest.raises(TraceError, match=r":3: .*--partial-blocks continue"):
        read(write(rows), partial_blocks="error")
    assert read(write(rows[:2]), partial_blocks="error").notes == ()


# --- Qwen-Bailian -------------------------------------------------------------------------------


def chat(
    name: int | str, parent: int | str, time: float, ids: Sequence[int] = (1,), **more: Any
) -> dict:
    return {
        "chat_id": name,
        "parent_chat_id": parent,
        "timestamp": time,
        "input_length": 16 * len(ids),
        "output_length": 3,
        "type": "text",
        "turn": 1,
        "hash_ids": list(ids),
    } | more


def test_bailian_sessions_are_trees_of_chats(write: Write) -> None:
    rows = [
        chat(1, -1, 0.5, [5, 6]),
        chat(2, -1, 1.25, [5, 7]),
        chat(4, 3, 30, [5, 6, 9]),  # before its parent
        chat(3, 1, 40.5, [5, 6, 8]),
        chat(5, 2, 61.114, [5, 6]),
        chat(6, 1, 61.114, [6, 6]),
    ]
    trace = read(write(rows))
    assert trace.block_size == 16
    assert trace.session.tolist() == [0, 1, 0, 0, 1, 0]
    assert trace.arrival.tolist() == [0.5, 1.25, 30, 40.5, 61.114, 61.114]
    assert trace.order.tolist() == list(range(6))
    assert trace.clock == "recorded"
    # The ids are not chained: 6 after 6 is no 6 after 5.
    assert trace.seen_blocks.tolist() == [0, 1, 2, 2, 2, 0]
    assert trace.notes == ()


def test_bailian_parents_that_are_not_in_the_file(write: Write) -> None:
    rows = [chat(9, 2, 0), chat(4, 3, 20), chat(5, 3, 30), chat(6, 5, 40)]
    trace = read(write(rows))
    assert trace.session.tolist() == [0, 1, 1, 1]
    assert any(note.startswith("3 requests go on from chats") for note in trace.notes)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([chat(1, 2, 0), chat(2, 1, 1)], r":1: .*circle"),
        ([chat(1, -1, 0), chat(2, -1, 1), chat(2, 1, 2)], r":3: chat_id 2 .*another one in .*:2"),
        ([chat(1, -1, 0, input_length=0)], r":1: input_length is 0"),
        ([chat(1, -1, 0, output_length=-1)], r":1: output_length is -1"),
        ([chat(1, -1, -2)], r":1: timestamp is -2"),
        ([chat(1, -1, 0, [1, 2], input_length=64)], r":1: 2 hash_ids for .* 3|4"),
        ([{"chat_id": 1}], r":1: not a complete JSON object .*timestamp"),
    ],
)
def test_bailian_errors(write: Write, rows: list[dict], message: str) -> None:
    with pytest.raises(TraceError, match=message):
        read(write(rows))


def test_bailian_takes_floor_or_ceil(write: Write) -> None:
    rows = [chat(1, -1, 0, [1], input_length=20), chat(2, 1, 30, [1, 2], input_length=20)]
    trace = read(write(rows))
    assert trace.unblocked_tokens.tolist() == [4, 0]
    assert trace.seen_tokens.tolist() == [0, 16]


def test_bailian_times_in_milliseconds_are_questioned(write: Write) -> None:
    rows = [chat(1, -1, 0), chat(2, -1, 10 * 365 * DAY * 1000)]
    assert "very long" in noted(read(write(rows)))


# --- options ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"time_unit": "min"}, "time_unit is 'min'; it must be s or ms or us or ns"),
        ({"partial_blocks": "maybe"}, "partial_blocks is 'maybe'; it must be continue or error"),
        ({"rows": "both"}, "rows is 'both'; it must be cumulative or incremental"),
        ({"nested": "no"}, "nested is 'no'; it must be relative or absolute"),
        ({"block_size": 0}, "block_size is 0; it must be at least 1"),
        ({"block_size": -4}, "block_size is -4; it must be at least 1"),
        ({"keep_repeats": True}, "option keep_repeats does not apply to the format mooncake"),
    ],
)
def test_options_that_are_none(write: Write, options: dict[str, Any], message: str) -> None:
    with pytest.raises(TraceError, match=message):
        timed(write, [0], **options)
