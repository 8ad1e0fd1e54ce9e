"""The trace: request columns plus the radix tree of all prompt chains."""

import json
import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numba import njit

FORMAT_VERSION = 2
# Values of Trace.clock.
RECORDED, SESSION, DRAWN = "recorded", "session", "drawn"
SESSION_CLOCK_NOTE = "No arrival times across sessions: each session starts at its own 0."


class TraceError(ValueError):
    """Bad input; the message is the one line a user sees."""


class Tree(NamedTuple):
    """Radix tree of chains, one row a node; a parent's index is below its children's.

    A node holds consecutive blocks that every request either asks for
    together or not at all, so all its blocks have one access history.

    Attributes
    ----------
    parent : int32[m]
        Parent node; -1 for a child of the root.
    length : int32[m]
        Blocks in the node, at least 1.
    depth : int32[m]
        Blocks above the node's first block.
    tokens_above : int64[m]
        Tokens in the blocks above the node.
    tail_tokens : int32[m]
        Tokens of the node's last block; every other block holds ``block_size``.
    """

    parent: np.ndarray
    length: np.ndarray
    depth: np.ndarray
    tokens_above: np.ndarray
    tail_tokens: np.ndarray


REQUEST_COLUMNS = (
    "arrival",
    "order",
    "session",
    "input_tokens",
    "output_tokens",
    "service",
    "subagent",
    "terminal",
)


@dataclass(frozen=True, eq=False)
class Trace:
    """An immutable request trace; rows are in processing order.

    Parameters
    ----------
    name : str
        What the trace is called in tables.
    block_size : int
        Tokens a full block holds.
    source_hash : str
        SHA-256 (hex) of the bytes the trace was read from.
    arrival : float64[n]
        Seconds, non-decreasing. Equal times keep ``order``.
    order : int32[n]
        Position in reading order: (file in byte order of its name, row).
    session : int32[n]
        Session of the request, numbered in file order; -1 everywhere where
        the format has no sessions.
    input_tokens, output_tokens : int64[n]
        Tokens of prompt and answer.
    service : float64[n]
        Seconds the request ran; NaN where unknown.
    subagent : bool[n]
        Whether a sub-agent of the session sent the request.
    terminal : int32[n]
        Node in which the request's chain ends; -1 for an empty chain.
    tree : Tree
        The radix tree of all chains.
    notes : tuple of str
        What the reader dropped, moved or assumed, a sentence each.
    clock : {"recorded", "session", "drawn"}
        What arrivals count from: one clock for all requests; each session's own start, which no
        cache can be replayed on; or starts drawn by `kvsim.traces.arrivals.arrange`.
    """

    name: str
    block_size: int
    source_hash: str
    arrival: np.ndarray
    order: np.ndarray
    session: np.ndarray
    input_tokens: np.ndarray
    output_tokens: np.ndarray
    service: np.ndarray
    subagent: np.ndarray
    terminal: np.ndarray
    tree: Tree
    notes: tuple[str, ...] = ()
    clock: str = RECORDED

    def __post_init__(self) -> None:
        for name in REQUEST_COLUMNS:
            getattr(self, name).setflags(write=False)
        for column in self.tree:
            column.setflags(write=False)

    def __repr__(self) -> str:
        sessions = "" if self.sessions is None else f", {self.sessions:,} sessions"
        facts = (
            f"<Trace {self.name}: {self.requests:,} requests{sessions}, {self.blocks:,} blocks "
            f"({self.distinct_blocks:,} distinct) of {self.block_size} tokens>"
        )
        return "\n".join((facts, *(f"note: {note}" for note in self.notes)))

    @property
    def requests(self) -> int:
        """Number of requests."""
        return len(self.arrival)

    @cached_property
    def sessions(self) -> int | None:
        """Number of sessions, or None where the format has none."""
        if self.requests and self.session.min() < 0:
            return None
        return len(np.unique(self.session)) if self.requests else None

    @cached_property
    def chain_blocks(self) -> np.ndarray:
        """int64[n]: blocks of each request's chain."""
        return _at_terminal(self.terminal, self.tree.depth + self.tree.length.astype(np.int64))

    @cached_property
    def chain_tokens(self) -> np.ndarray:
        """int64[n]: tokens of each request's chain."""
        tree = self.tree
        whole = tree.length.astype(np.int64) - 1
        return _at_terminal(
            self.terminal, tree.tokens_above + whole * self.block_size + tree.tail_tokens
        )

    @cached_property
    def unblocked_tokens(self) -> np.ndarray:
        """int64[n]: input tokens that no block covers (format with full blocks only)."""
        return self.input_tokens - self.chain_tokens

    @cached_property
    def seen_blocks(self) -> np.ndarray:
        """int64[n]: leading blocks asked for before, that is an infinite cache's hits."""
        return self._seen[0]

    @cached_property
    def seen_tokens(self) -> np.ndarray:
        """int64[n]: tokens of the leading blocks asked for before."""
        return self._seen[1]

    @cached_property
    def _seen(self) -> tuple[np.ndarray, np.ndarray]:
        return _seen_before(self.terminal, *self.tree, self.block_size)

    @cached_property
    def blocks(self) -> int:
        """Block accesses of all requests."""
        return int(self.chain_blocks.sum())

    @cached_property
    def distinct_blocks(self) -> int:
        """Distinct blocks, a block being (parent, id)."""
        return int(self.tree.length.sum(dtype=np.int64))

    @property
    def infinite_hit_blocks(self) -> int:
        """Block hits of an infinite cache."""
        return int(self.seen_blocks.sum())

    @property
    def infinite_hit_tokens(self) -> int:
        """Token hits of an infinite cache."""
        return int(self.seen_tokens.sum())

    def info(self) -> dict[str, Any]:
        """Return what is in the trace (counts in requests, sessions, blocks, tokens)."""
        return {
            "requests": self.requests,
            "sessions": self.sessions,
            "blocks": self.blocks,
            "distinct_blocks": self.distinct_blocks,
            "infinite_hit_blocks": self.infinite_hit_blocks,
            "input_tokens": int(self.input_tokens.sum()),
            "infinite_hit_tokens": self.infinite_hit_tokens,
            "unblocked_tokens": int(self.unblocked_tokens.sum()),
            "block_size": self.block_size,
        }

    def select(self, rows: np.ndarray) -> "Trace":
        """Return the requests `rows` (index or mask) with the tree pruned to them.

        Parameters
        ----------
        rows : int or bool array
            Rows to keep, ascending.
        """
        columns = {name: getattr(self, name)[rows] for name in REQUEST_COLUMNS}
        keep = np.zeros(len(self.tree.parent), dtype=bool)
        terminal = columns["terminal"]
        keep[terminal[terminal >= 0]] = True
        _mark_ancestors(keep, self.tree.parent)
        # Index -1 (root) must map to -1, hence the extra last entry.
        index = np.full(len(keep) + 1, -1, dtype=np.int32)
        index[:-1][keep] = np.arange(keep.sum(), dtype=np.int32)
        columns["terminal"] = index[terminal]
        parent, *rest = (column[keep] for column in self.tree)
        return replace(self, **columns, tree=Tree(index[parent], *rest))

    def sorted_by(self, arrival: np.ndarray) -> "Trace":
        """Return the trace with new arrival times (seconds), in processing order."""
        rows = np.lexsort((self.order, arrival))
        columns = {name: getattr(self, name)[rows] for name in REQUEST_COLUMNS}
        columns["arrival"] = arrival[rows]
        return replace(self, **columns)

    def expand(self) -> "Trace":
        """Return the same trace on a tree of one block a node."""
        tree = self.tree
        length = tree.length.astype(np.int64)
        last = np.cumsum(length) - 1
        first = last - length + 1
        total = int(length.sum())
        offset = np.arange(total) - np.repeat(first, length)
        parent = np.arange(-1, total - 1, dtype=np.int32)
        parent[first] = np.where(tree.parent >= 0, last[tree.parent], -1)
        tail = np.full(total, self.block_size, dtype=np.int32)
        tail[last] = tree.tail_tokens
        blocks = Tree(
            parent=parent,
            length=np.ones(total, dtype=np.int32),
            depth=(np.repeat(tree.depth, length) + offset).astype(np.int32),
            tokens_above=np.repeat(tree.tokens_above, length) + offset * self.block_size,
            tail_tokens=tail,
        )
        # The appended -1 is what index -1, the empty chain, picks.
        terminal = np.append(last, -1)[self.terminal].astype(np.int32)
        return replace(self, terminal=terminal, tree=blocks)

    def save(self, path: str | Path) -> None:
        """Write the trace to one ``.npz`` file, atomically.

        Parameters
        ----------
        path : str or Path
            Target; replaced only once the whole file is written.
        """
        arrays = {name: getattr(self, name) for name in REQUEST_COLUMNS}
        arrays |= {f"tree_{name}": getattr(self.tree, name) for name in Tree._fields}
        plain = {f.name for f in fields(self)} - set(REQUEST_COLUMNS) - {"tree"}
        header = {name: getattr(self, name) for name in plain} | {"format": FORMAT_VERSION}
        text = np.array(json.dumps(header, sort_keys=True))
        write_atomically(path, lambda file: np.savez_compressed(file, header=text, **arrays))


def load(path: str | Path) -> Trace:
    """Open a trace written by `Trace.save`.

    Raises
    ------
    TraceError
        If the file is not a saved trace, or of another format version.
    """
    try:
        with np.load(path, allow_pickle=False) as stored:
            header = json.loads(str(stored["header"]))
            columns = {name: stored[name] for name in REQUEST_COLUMNS}
            tree = Tree(*(stored[f"tree_{name}"] for name in Tree._fields))
    except (OSError, ValueError, KeyError) as error:
        raise TraceError(f"{path}: not a trace saved by kvsim ({error})") from error
    version = header.pop("format")
    if version != FORMAT_VERSION:
        raise TraceError(
            f"{path}: saved trace of format {version}; this kvsim reads format {FORMAT_VERSION}: "
            "convert the source again"
        )
    header["notes"] = tuple(header["notes"])
    return Trace(**header, **columns, tree=tree)


def write_atomically(path: str | Path, write: Callable[[IO[bytes]], object]) -> None:
    """Call `write` on a temporary binary file, then move it to `path`."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            write(file)
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(temporary, 0o666 & ~mask)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def on_one_clock(trace: Trace) -> Trace:
    """Return a trace that can be replayed as it is.

    Raises
    ------
    TraceError
        If each session's arrivals count from its own start.
    """
    if not isinstance(trace, Trace):
        raise TraceError(f"{trace!r} is not a trace; open_trace(name or path) gives one")
    if trace.clock == SESSION:
        raise TraceError(
            f"{trace.name}: every session starts at its own 0; say when they start: "
            "arrange(trace, window='8h', seed=0), or window=0 for all at once"
        )
    return trace


def accesses_by_node(trace: Trace) -> tuple[np.ndarray, np.ndarray]:
    """Return which requests access each node.

    Returns
    -------
    start : int64[m + 1]
        Node ``i``'s requests are ``requests[start[i]:start[i + 1]]``.
    requests : int32[visits]
        Rows of the trace, ascending within a node.
    """
    return _accesses_by_node(trace.terminal, trace.tree.parent)


@njit(cache=True)
def _accesses_by_node(terminal, parent):
    start = np.zeros(len(parent) + 1, dtype=np.int64)
    for r in range(len(terminal)):
        start[terminal[r] + 1] += terminal[r] >= 0
    for node in range(len(parent) - 1, -1, -1):
        if parent[node] >= 0:
            start[parent[node] + 1] += start[node + 1]
    for node in range(len(parent)):
        start[node + 1] += start[node]
    requests = np.empty(start[-1], dtype=np.int32)
    filled = start[:-1].copy()
    for r in range(len(terminal)):
        node = terminal[r]
        while node >= 0:
            requests[filled[node]] = r
            filled[node] += 1
            node = parent[node]
    return start, requests


def _at_terminal(terminal: np.ndarray, per_node: np.ndarray) -> np.ndarray:
    # The appended 0 is what index -1, the empty chain, picks.
    return np.append(per_node, 0).astype(np.int64)[terminal]


@njit(cache=True)
def _mark_ancestors(keep, parent):  # pragma: no cover - compiled
    for node in range(len(parent) - 1, -1, -1):
        if keep[node] and parent[node] >= 0:
            keep[parent[node]] = True


@njit(cache=True)
def _seen_before(terminal, parent, length, depth, tokens_above, tail_tokens, block_size):
    seen = np.zeros(len(parent), dtype=np.bool_)
    blocks = np.zeros(len(terminal), dtype=np.int64)
    tokens = np.zeros(len(terminal), dtype=np.int64)
    for r in range(len(terminal)):
        node = terminal[r]
        while node >= 0 and not seen[node]:
            seen[node] = True
            node = parent[node]
        if node >= 0:
            blocks[r] = depth[node] + length[node]
            tokens[r] = tokens_above[node] + (length[node] - 1) * block_size + tail_tokens[node]
    return blocks, tokens
