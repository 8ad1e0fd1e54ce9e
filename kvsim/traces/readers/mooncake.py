"""Mooncake JSONL and its session extension (aiperf, Dynamo).

A line a request: `timestamp` (ms), `input_length`, `output_length` (tokens),
`hash_ids` (global), and where other tools write it a `block_size`.
``len(hash_ids)`` is exactly ceil(input_length / block).
"""

from typing import TypeVar

import msgspec

from kvsim.traces.readers.rows import Row, Rows, decoded
from kvsim.traces.readers.sizes import BlockSize
from kvsim.traces.readers.source import Source
from kvsim.traces.readers.units import UNITS
from kvsim.traces.trace import Trace, TraceError

Number = TypeVar("Number", int | None, float | None)
BLOCK_SIZE = 512  # FAST25-release/README of the Mooncake repository


class Line(msgspec.Struct):
    """One line; the aliases are those of aiperf and Dynamo."""

    hash_ids: msgspec.Raw = msgspec.Raw()
    timestamp: float | None = None
    created_time: float | None = None
    input_length: int | None = None
    input_tokens: int | None = None
    output_length: int | None = None
    output_tokens: int | None = None
    session_id: str | int | None = None
    delay: float | None = None
    delay_ms: float | None = None
    block_size: int | None = None


def read_mooncake(
    source: Source,
    *,
    block_size: int | None = None,
    rows: str | None = None,
    time_unit: str | None = None,
    partial_blocks: str = "continue",
) -> Trace:
    """Read a Mooncake trace; its options are those of `kvsim.traces.readers.read`.

    Raises
    ------
    TraceError
        On bad input, naming file and line.
    """
    reader = _MooncakeReader(block_size, rows, time_unit, partial_blocks)
    for line, where in decoded(source, Line):
        reader.add(line, where)
    return reader.finish(source)


class _MooncakeReader:
    def __init__(
        self, block_size: int | None, rows: str | None, time_unit: str | None, partial_blocks: str
    ) -> None:
        self.size = BlockSize(block_size, BLOCK_SIZE, partial=True)
        self.rows = Rows(self.size, partial_blocks)
        self.kind = rows
        self.time_unit = time_unit
        self.sessions: dict[str | int, int] = {}
        self.previous: dict[int, tuple[float, int, int]] = {}  # time, input tokens, terminal
        self.plain = False
        self.delays = False

    def add(self, line: Line, where: str) -> None:
        self.size.state(line.block_size, where)
        new = _either(where, "input_length", line.input_length, line.input_tokens)
        output = _either(where, "output_length", line.output_length, line.output_tokens)
        session = self._session(line, where)
        time, before, above = self.previous.get(session, (None, 0, -1))
        time = self._time(line, time, where)
        if self.kind != "incremental":
            before, above = 0, -1
        if new is None:
            raise TraceError(f"{where}: no input_length")
        self.rows.add(Row(line.hash_ids or b"[]", where, time, session, before, new, output or 0))
        terminal = -1
        if self.kind == "incremental":  # the next row of the session goes on from here
            terminal = self.rows.flush(above)[0]
        if session >= 0:
            self.previous[session] = (time, before + new, terminal)

    def finish(self, source: Source) -> Trace:
        doubt = ""
        if self.size.tokens != BLOCK_SIZE:
            doubt = f"blocks are not of {BLOCK_SIZE} tokens as in Mooncake's own traces"
        return self.rows.finish(
            source,
            "ms",
            self.time_unit,
            sure=self.delays,
            doubt="" if self.delays else doubt,
        )

    def _session(self, line: Line, where: str) -> int:
        if line.session_id is None:
            self.plain = True
        elif self.kind is None:
            raise TraceError(
                f"{where}: rows carry a session_id; say --rows cumulative (each row holds its "
                "whole prompt) or --rows incremental (each row holds only what is new)"
            )
        if self.plain and (self.sessions or line.session_id is not None):
            raise TraceError(f"{where}: some rows have a session_id and some do not")
        if line.session_id is None:
            return -1
        return self.sessions.setdefault(line.session_id, len(self.sessions))

    def _time(self, line: Line, previous: float | None, where: str) -> float:
        time = _either(where, "timestamp", line.timestamp, line.created_time)
        if time is None and previous is not None:
            in_ms = line.delay_ms
            if in_ms is not None:
                in_ms *= UNITS[self.time_unit or "ms"] / UNITS["ms"]
            delay = _either(where, "delay", line.delay, in_ms)
            self.delays |= delay is not None  # which these tools write in ms, as timestamps
            time = None if delay is None else previous + delay
        if time is None:
            raise TraceError(f"{where}: no timestamp, and no delay after an earlier row")
        return time


def _either(where: str, field: str, value: Number, alias: Number) -> Number:
    if value is not None and alias is not None and value != alias:
        raise TraceError(f"{where}: {field} is {value} and its alias says {alias}")
    return alias if value is None else value
