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
CONTINUE, REFUSE = "continue", "error"  # values of partial_blocks
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

    Parameters
    ----------
    block_size : int
        Tokens of a full block.
    partial_blocks : {"continue", "error"}
        What a last block is that was partial and is met again with other tokens, or inside a
        longer chain. To continue it makes another block: engines never cache a partial one, so a
        longer prompt does not hit it; and the shorter prompt, asked again, does.
    """

    block_size: int
    partial_blocks: str = CONTINUE
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.partial_blocks not in (CONTINUE, REFUSE):
            raise TraceError(
                f"partial blocks {self.partial_blocks!r}: must be {CONTINUE} or {REFUSE}"
            )
        self._tree = RadixBuilder(self.block_size, apart=self.partial_blocks == CONTINUE)
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
            If a block's tokens disagree with its first sighting, and that is an error.
        """
        size = self.block_size
        tails = np.minimum(np.array(tokens, dtype=np.int64) - (lengths - 1) * size, size)
        terminals = self._tree.add(ids, lengths, tails, namespace=namespace, start=start)
        if terminals.min() < -1:
            at = int(np.argmax(terminals < -1))
            raise TraceError(
                f"{where[at]}: {DISAGREEMENTS[int(terminals[at])]}; "
                f"{tokens[at]} tokens in {lengths[at]} blocks of {size}; is the block size right? "
                f"--partial-blocks {CONTINUE} reads both as different blocks"
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

    @property
    def arrival(self) -> np.ndarray:
        """float64[n]: the arrivals as they were given."""
        return np.array(self._columns["arrival"])

    def finish(
        self,
        name: str,
        source_hash: str,
        *,
        arrival: np.ndarray | None = None,
        session_of: np.ndarray | None = None,
        session_rank: np.ndarray | None = None,
        own_starts: bool = False,
    ) -> Trace:
        """Sort the requests into processing order and return the trace.

        Parameters
        ----------
        name, source_hash : str
            As in `Trace`.
        arrival : float64[n], optional
            Seconds, in place of the arrivals that were given.
        session_of : int[], optional
            The session that each given session is a part of.
        session_rank : int[sessions], optional
            Place of each session in the byte order of the files' names.
        own_starts : bool
            Whether the format counts each session's arrivals from its own start; otherwise that
            is told from the arrivals.
        """
        if apart := self._tree.told_apart():
            self.notes.append(
                f"{apart:,} last blocks are partial and share their id with a block of other "
                "tokens: they count as blocks of their own (--partial-blocks)."
            )
        tree, index = self._tree.finish()
        columns = {name: np.array(column) for name, column in self._columns.items()}
        session = columns["session"]
        if arrival is None:
            arrival = columns["arrival"]
        if session_of is not None:
            session = session_of[session]
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
