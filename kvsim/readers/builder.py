"""Collect requests from a reader and finish them into a Trace."""

from array import array
from dataclasses import dataclass, field

import numpy as np

from kvsim.radix import FULL_BEFORE, OTHER_TOKENS, PARTIAL_BEFORE, RadixBuilder
from kvsim.trace import Trace, TraceError

DISAGREEMENTS = {
    FULL_BEFORE: "the chain's last block is partial here and was full at its first sighting",
    PARTIAL_BEFORE: "a block inside the chain was partial at its first sighting",
    OTHER_TOKENS: "the chain's last block held another number of tokens at its first sighting",
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
        self._floats = {name: array("d") for name in ("arrival", "service")}
        self._integers = {
            name: array("q")
            for name in ("session", "input_tokens", "output_tokens", "subagent", "terminal")
        }

    def chain(
        self, ids: np.ndarray, tokens: int, where: str, *, namespace: int = 0, start: int = -1
    ) -> int:
        """Insert a chain covering `tokens` tokens and return its terminal.

        Parameters
        ----------
        ids : int64[k]
            Block ids, root first; ``k`` is floor or ceil of tokens / block_size.
        tokens : int
            Tokens of these ids' text.
        where : str
            "file:line" for error messages.
        namespace, start : int
            As for `RadixBuilder.add`.

        Raises
        ------
        TraceError
            If a block's tokens disagree with its first sighting.
        """
        partial = tokens - (len(ids) - 1) * self.block_size
        terminal = self._tree.add(ids, namespace, min(partial, self.block_size), start)
        if terminal < -1:
            raise TraceError(
                f"{where}: {DISAGREEMENTS[terminal]}; "
                f"{tokens} tokens in {len(ids)} blocks of {self.block_size} (block size right?)"
            )
        return terminal

    def request(
        self,
        *,
        arrival: float,
        session: int,
        input_tokens: int,
        output_tokens: int,
        service: float,
        subagent: bool,
        terminal: int,
    ) -> None:
        """Append one request; call in reading order."""
        self._floats["arrival"].append(arrival)
        self._floats["service"].append(service)
        self._integers["session"].append(session)
        self._integers["input_tokens"].append(input_tokens)
        self._integers["output_tokens"].append(output_tokens)
        self._integers["subagent"].append(subagent)
        self._integers["terminal"].append(terminal)

    @property
    def session_column(self) -> np.ndarray:
        """int64[n]: sessions so far, in reading order."""
        return np.array(self._integers["session"], dtype=np.int64)

    def finish(
        self,
        name: str,
        source_hash: str,
        *,
        session_rank: np.ndarray | None = None,
        shift: np.ndarray | None = None,
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
        """
        tree, index = self._tree.finish()
        arrival = np.array(self._floats["arrival"], dtype=np.float64)
        if shift is not None:
            arrival = arrival + shift
        session = self.session_column
        order = np.arange(len(arrival))
        if session_rank is not None:
            session = session_rank[session]
            order[np.lexsort((order, session))] = np.arange(len(order))
        moved = _out_of_order(arrival, session)
        if moved:
            self.notes.append(
                f"{moved} requests came earlier than a row above them and were sorted by arrival."
            )
        rows = np.lexsort((order, arrival))
        terminal = index[np.array(self._integers["terminal"], dtype=np.int64)]
        return Trace(
            name=name,
            block_size=self.block_size,
            source_hash=source_hash,
            arrival=arrival[rows],
            order=order[rows].astype(np.int32),
            session=session[rows].astype(np.int32),
            input_tokens=np.array(self._integers["input_tokens"], dtype=np.int64)[rows],
            output_tokens=np.array(self._integers["output_tokens"], dtype=np.int64)[rows],
            service=np.array(self._floats["service"], dtype=np.float64)[rows],
            subagent=np.array(self._integers["subagent"], dtype=np.int64)[rows].astype(bool),
            terminal=terminal[rows],
            tree=tree,
            notes=tuple(self.notes),
        )


def _out_of_order(arrival: np.ndarray, session: np.ndarray) -> int:
    """Count requests that arrive before an earlier row of their session."""
    rows = np.argsort(session, kind="stable")
    time, owner = arrival[rows], session[rows]
    moved = 0
    for part in np.split(time, np.flatnonzero(np.diff(owner)) + 1):
        if len(part):
            moved += int((part < np.maximum.accumulate(part)).sum())
    return moved
