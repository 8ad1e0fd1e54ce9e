"""Mooncake JSONL, plain or gzip, and its session extension (aiperf, Dynamo).

A line a request: `timestamp` (ms), `input_length`, `output_length` (tokens),
`hash_ids` (global). ``len(hash_ids)`` is exactly ceil(input_length / block).
"""

from collections.abc import Callable, Iterator
from math import isfinite, nan
from pathlib import Path
from typing import NamedTuple, TypeVar

import msgspec

from kvsim.traces.readers.builder import BATCH, LIMIT, TraceBuilder
from kvsim.traces.readers.ids import BlockIds
from kvsim.traces.readers.source import BOM, DAMAGE, Source, decode_error
from kvsim.traces.trace import Trace, TraceError

Number = TypeVar("Number", int | None, float | None)
BLOCK_SIZE = 512  # FAST25-release/README of the Mooncake repository


class Row(msgspec.Struct):
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


class Pending(NamedTuple):
    """A row whose ids wait to be parsed."""

    ids: bytes | msgspec.Raw
    where: str
    arrival: float
    session: int
    before: int  # tokens of the session's rows above it, if rows are incremental
    new: int
    output: int


def read_mooncake(
    path: Path,
    *,
    block_size: int | None = None,
    rows: str | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Trace:
    """Read a Mooncake trace.

    Parameters
    ----------
    path : Path
        ``.jsonl`` or ``.jsonl.gz``.
    block_size : int, optional
        Tokens a block; 512 unless given (the file does not say).
    rows : {"cumulative", "incremental"}, optional
        Whether a row of a session holds its whole prompt or only what is new.
        Required where rows carry a `session_id`.
    progress : callable, optional
        Told (bytes read, bytes in all).

    Raises
    ------
    TraceError
        On bad input, naming file and line.
    """
    reader = _MooncakeReader(block_size or BLOCK_SIZE, rows)
    source = Source(path, progress)
    decode = msgspec.json.Decoder(Row).decode
    for number, line in lines(source):
        where = f"{path}:{number}"
        try:
            row = decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise decode_error(where, line, error) from error
        reader.add(row, where)
    reader.flush()
    return reader.builder.finish(path.name.split(".")[0], source.digest())


def lines(source: Source) -> Iterator[tuple[int, bytes]]:
    """Yield (line number, line) of a plain or compressed file, without BOM and blank lines."""
    number = 0
    with source.open_plain() as file:
        try:
            for number, line in enumerate(file, 1):
                line = line.removeprefix(BOM) if number == 1 else line
                if line.strip():
                    yield number, line
        except DAMAGE as error:
            raise TraceError(
                f"{source.path}:{number + 1}: the compressed data is cut off or damaged ({error})"
            ) from error


class _MooncakeReader:
    def __init__(self, block_size: int, rows: str | None) -> None:
        self.builder = TraceBuilder(block_size)
        self.ids = BlockIds()
        self.rows = rows
        self.sessions: dict[str | int, int] = {}
        self.previous: dict[int, tuple[float, int, int]] = {}  # arrival, input tokens, terminal
        self.plain = False
        self.batch: list[Pending] = []
        self.batch_bytes = 0

    def add(self, row: Row, where: str) -> None:
        new = _either(where, "input_length", row.input_length, row.input_tokens)
        if new is None or new < 1:
            raise TraceError(f"{where}: input_length is {new}; it must be at least 1 token")
        output = _either(where, "output_length", row.output_length, row.output_tokens) or 0
        if not 0 <= output < LIMIT:
            raise TraceError(
                f"{where}: output_length is {output}; it must be 0 or more, below 2^63"
            )
        session = self._session(row, where)
        arrival, before, above = self.previous.get(session, (None, 0, -1))
        arrival = self._arrival(row, arrival, where)
        if self.rows != "incremental":
            before, above = 0, -1
        self.batch.append(
            Pending(row.hash_ids or b"[]", where, arrival, session, before, new, output)
        )
        self.batch_bytes += len(row.hash_ids)
        terminal = -1
        if self.rows == "incremental":  # the next row of the session goes on from here
            terminal = self.flush(above)[0]
        elif self.batch_bytes >= BATCH:
            self.flush()
        if session >= 0:
            self.previous[session] = (arrival, before + new, terminal)

    def flush(self, start: int = -1) -> list[int]:
        """Parse and insert the rows that wait, and return their terminals."""
        batch, self.batch, self.batch_bytes = self.batch, [], 0
        if not batch:
            return []
        where = [row.where for row in batch]
        tokens = [row.new for row in batch]
        ids, lengths = self.ids.parse([row.ids for row in batch], where)
        for row, blocks in zip(batch, lengths.tolist(), strict=True):
            expected = -(-row.new // self.builder.block_size)
            if blocks != expected:
                raise TraceError(
                    f"{row.where}: {blocks} hash_ids for input_length {row.new}; blocks of "
                    f"{self.builder.block_size} tokens need exactly {expected}"
                )
        terminals = self.builder.chains(ids, lengths, tokens, where, start=start)
        self.builder.requests(
            arrival=[row.arrival for row in batch],
            session=[row.session for row in batch],
            input_tokens=[row.before + row.new for row in batch],
            output_tokens=[row.output for row in batch],
            service=[nan] * len(batch),
            subagent=[False] * len(batch),
            terminal=terminals,
        )
        return terminals

    def _session(self, row: Row, where: str) -> int:
        if row.session_id is None:
            self.plain = True
        elif self.rows is None:
            raise TraceError(
                f"{where}: rows carry a session_id; say --rows cumulative (each row holds its "
                "whole prompt) or --rows incremental (each row holds only what is new)"
            )
        if self.plain and (self.sessions or row.session_id is not None):
            raise TraceError(f"{where}: some rows have a session_id and some do not")
        if row.session_id is None:
            return -1
        return self.sessions.setdefault(row.session_id, len(self.sessions))

    def _arrival(self, row: Row, previous: float | None, where: str) -> float:
        stamp = _either(where, "timestamp", row.timestamp, row.created_time)
        if stamp is None and previous is not None:
            delay = _either(where, "delay", row.delay, row.delay_ms)
            stamp = None if delay is None else 1000 * previous + delay
        if stamp is None:
            raise TraceError(f"{where}: no timestamp (ms), and no delay after an earlier row")
        if not isfinite(stamp) or stamp < 0:
            raise TraceError(f"{where}: timestamp is {stamp}; it must be at least 0 ms")
        return stamp / 1000


def _either(where: str, field: str, value: Number, alias: Number) -> Number:
    if value is not None and alias is not None and value != alias:
        raise TraceError(f"{where}: {field} is {value} and its alias says {alias}")
    return alias if value is None else value
