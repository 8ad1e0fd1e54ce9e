"""Requests of a line each: what formats of one JSON object a request have in common."""

from collections.abc import Iterator
from functools import cached_property
from math import isfinite, nan
from typing import NamedTuple, TypeVar

import msgspec
import numpy as np

from kvsim.traces.readers.builder import BATCH, LIMIT, TraceBuilder
from kvsim.traces.readers.ids import BlockIds
from kvsim.traces.readers.sizes import BlockSize
from kvsim.traces.readers.source import Source, decode_error
from kvsim.traces.readers.units import in_seconds
from kvsim.traces.trace import Trace, TraceError

Struct = TypeVar("Struct", bound=msgspec.Struct)


class Row(NamedTuple):
    """A request whose ids wait to be parsed."""

    ids: bytes | msgspec.Raw
    where: str
    time: float  # in the file's unit
    session: int
    before: int  # tokens of the session's rows above it, if rows are incremental
    new: int
    output: int


def decoded(source: Source, kind: type[Struct]) -> Iterator[tuple[Struct, str]]:
    """Yield each line as an object of `kind`, and its "file:line"."""
    decode = msgspec.json.Decoder(kind).decode
    for number, line in source.lines():
        where = f"{source.label}:{number}"
        try:
            row = decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise decode_error(where, line, error) from error
        yield row, where


class Rows:
    """Rows on their way into a trace.

    Parameters
    ----------
    size : BlockSize
        Settled before the first row is added.
    partial_blocks : {"continue", "error"}
        As for `TraceBuilder`.
    """

    def __init__(self, size: BlockSize, partial_blocks: str) -> None:
        self.size = size
        self._partial_blocks = partial_blocks
        self._ids = BlockIds()
        self._waiting: list[Row] = []
        self._bytes = 0

    @cached_property
    def builder(self) -> TraceBuilder:
        """What the rows are collected in."""
        return TraceBuilder(self.size.tokens, partial_blocks=self._partial_blocks)

    def add(self, row: Row) -> None:
        """Take a row; its ids are parsed with those of others."""
        if not 1 <= row.new < LIMIT:
            raise TraceError(
                f"{row.where}: input_length is {row.new}; it must be at least 1 token, below 2^63"
            )
        if not 0 <= row.output < LIMIT:
            raise TraceError(
                f"{row.where}: output_length is {row.output}; it must be 0 or more, below 2^63"
            )
        if not isfinite(row.time) or row.time < 0:
            raise TraceError(f"{row.where}: timestamp is {row.time}; it must be at least 0")
        self._waiting.append(row)
        self._bytes += len(row.ids)
        if self._bytes >= BATCH:
            self.flush()

    def flush(self, start: int = -1) -> list[int]:
        """Parse and insert the rows that wait, and return their terminals."""
        rows, self._waiting, self._bytes = self._waiting, [], 0
        if not rows:
            return []
        where = [row.where for row in rows]
        inputs = [row.new for row in rows]
        ids, lengths = self._ids.parse([row.ids for row in rows], where)
        self.size.check(lengths, inputs, where, "input_length")
        terminals = self.builder.chains(ids, lengths, inputs, where, start=start)
        self.builder.requests(
            arrival=[row.time for row in rows],
            session=[row.session for row in rows],
            input_tokens=[row.before + row.new for row in rows],
            output_tokens=[row.output for row in rows],
            service=[nan] * len(rows),
            subagent=[False] * len(rows),
            terminal=terminals,
        )
        return terminals

    def finish(
        self,
        source: Source,
        unit: str,
        given: str | None,
        *,
        sure: bool = True,
        doubt: str = "",
        session_of: np.ndarray | None = None,
    ) -> Trace:
        """Return the trace; the unit of its times is weighed as by `in_seconds`."""
        self.flush()
        arrival, notes = in_seconds(self.builder.arrival, unit, given=given, sure=sure, doubt=doubt)
        self.builder.notes += notes
        return self.builder.finish(
            source.name, source.digest(), arrival=arrival, session_of=session_of
        )
