"""Collect requests from a reader and finish them into a Trace."""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kvsim.traces.radix import FULL_BEFORE, OTHER_TOKENS, PARTIAL_BEFORE, RadixBuilder
from kvsim.traces.trace import RECORDED, SESSION, SESSION_CLOCK_NOTE, Trace, TraceError

DISAGREEMENTS = {
    FULL_BEFORE: "the chain's last block is partial here and was full at its first sighting",
    PARTIAL_BEFORE: "a block inside the chain was partial at its first sighting",
    OTHER_TOKENS: "the chain's last block held another number of tokens at its first sighting",
}
LIMIT = 1 << 63  # of numbers in a trace
# Bytes of ids that readers parse and insert together. Of several faults in them, the one that is
# reported need not be the first.
BATCH = 1 << 18
COLUMNS = {
    "arrival": "d",
    "session": "q",
    "input_tokens": "q",
    "output_tokens": "q",
    "service": "d",
    "subagent": "b",
    "terminal": "q",
}


@dataclass
class TraceBuilder:
    """Columns of a trace under construction.

    Compact arrays, so that memory stays far below the input's size.
    """

    block_size: int
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._tree = RadixBuilder(self.block_size)
        self._columns = {name: array(code) for name, code in COLUMNS.items()}

    def chains(
        self,
        ids: np.ndarray,
        lengths: np.ndarray,
        tokens: Sequence[int],
        where: Sequence[str],
        *,
        namespace: int = 0,
        start: int = -1,
    ) -> list[int]:
        """Insert chains and return their terminals.

        Parameters
        ----------
        ids : int64[]
            Block ids of one chain after the other, each root first.
        lengths : int64[k]
            Blocks of each chain.
        tokens : sequence of int
            Tokens that each chain covers: its blocks are floor or ceil of tokens / block_size.
        where : sequence of str
            "file:line" of each for error messages.
        namespace, start : int
            As for `RadixBuilder.add`.

        Raises
        ------
        TraceError
            If a block's tokens disagree with its first sighting.
        """
        size = self.block_size
        tails = np.minimum(np.array(tokens, dtype=np.int64) - (lengths - 1) * size, size)
        terminals = self._tree.add(ids, lengths, tails, namespace=namespace, start=start)
        if terminals.min() < -1:
            at = int(np.argmax(terminals < -1))
            raise TraceError(
                f"{where[at]}: {DISAGREEMENTS[int(terminals[at])]}; "
                f"{tokens[at]} tokens in {lengths[at]} blocks of {size} (block size right?)"
            )
        return terminals.tolist()

    def requests(self, **columns: Sequence[Any]) -> None:
        """Append requests; call in reading order.

        Parameters
        ----------
        **columns
            Every column of `COLUMNS`, all of one length.

        Raises
        ------
        ValueError
            If a column is missing, unknown or of another length.
        """
        if columns.keys() != COLUMNS.keys() or len(set(map(len, columns.values()))) > 1:
            raise ValueError(f"columns of one length are wanted: {', '.join(COLUMNS)}")
        for name, column in self._columns.items():
            column.extend(columns[name])

    def finish(
        self,
        name: str,
        source_hash: str,
        *,
        session_rank: np.ndarray | None = None,
        shift: np.ndarray | None = None,
        own_starts: bool = False,
    ) -> Trace:
        """Sort the requests into processing order and return the trace.

        Parameters
        ----------
        name, source_hash : str
            As in `Trace`.
        session_rank : int[sessions], optional
            Place of each session in the byte order of the files' names.
        shift : float64[n], optional
            Seconds to add to the arrivals.
        own_starts : bool
            Whether the format counts each session's arrivals from its own start; otherwise that
            is told from the arrivals.
        """
        tree, index = self._tree.finish()
        columns = {name: np.array(column) for name, column in self._columns.items()}
        arrival, session = columns["arrival"], columns["session"]
        if shift is not None:
            arrival = arrival + shift
        order = np.arange(len(arrival))
        if session_rank is not None:
            session = session_rank[session]
            order[np.lexsort((order, session))] = np.arange(len(order))
        moved = _out_of_order(arrival, session)
        if moved:
            self.notes.append(
                f"{moved} requests came earlier than a row above them and were sorted by arrival."
            )
        clock = _clock(arrival, session, own_starts)
        if clock == SESSION:
            self.notes.append(SESSION_CLOCK_NOTE)
        rows = np.lexsort((order, arrival))
        return Trace(
            name=name,
            block_size=self.block_size,
            source_hash=source_hash,
            arrival=arrival[rows],
            order=order[rows].astype(np.int32),
            session=session[rows].astype(np.int32),
            input_tokens=columns["input_tokens"][rows],
            output_tokens=columns["output_tokens"][rows],
            service=columns["service"][rows],
            subagent=columns["subagent"][rows].astype(bool),
            terminal=index[columns["terminal"][rows]],
            tree=tree,
            notes=tuple(self.notes),
            clock=clock,
        )


def _clock(arrival: np.ndarray, session: np.ndarray, own_starts: bool) -> str:
    """Tell whether sessions count from their own starts, as those of several do that all are 0."""
    known, place = np.unique(session, return_inverse=True)
    first = np.full(len(known), np.inf)
    np.minimum.at(first, place, arrival)
    return SESSION if len(known) > 1 and (own_starts or not first.any()) else RECORDED


def _out_of_order(arrival: np.ndarray, session: np.ndarray) -> int:
    """Count requests that arrive before an earlier row of their session."""
    rows = np.argsort(session, kind="stable")
    time, owner = arrival[rows], session[rows]
    moved = 0
    for part in np.split(time, np.flatnonzero(np.diff(owner)) + 1):
        if len(part):
            moved += int((part < np.maximum.accumulate(part)).sum())
    return moved
