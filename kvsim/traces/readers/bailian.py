"""Qwen-Bailian JSONL, the usage traces of Alibaba's model service.

A line a request: `timestamp` (seconds since the trace's start), `input_length`, `output_length`
(tokens), `hash_ids` (one a block of 16 tokens, each the hash of that block alone), `chat_id` and
`parent_chat_id` (the request that this one goes on from; -1 at the root). A row holds its whole
prompt. A session is a tree of requests that go on from each other. Source: the README of
alibaba-edu/qwen-bailian-usagetraces-anon.
"""

import msgspec
import numpy as np

from kvsim.traces.readers.rows import Row, Rows, decoded
from kvsim.traces.readers.sizes import BlockSize
from kvsim.traces.readers.source import Source
from kvsim.traces.trace import Trace, TraceError

BLOCK_SIZE = 16
ROOT = -1


class Line(msgspec.Struct):
    """One line; unknown fields are ignored."""

    chat_id: int | str
    timestamp: float
    input_length: int
    hash_ids: msgspec.Raw
    parent_chat_id: int | str | None = ROOT
    output_length: int = 0
    block_size: int | None = None


def read_bailian(
    source: Source,
    *,
    block_size: int | None = None,
    time_unit: str | None = None,
    partial_blocks: str = "continue",
) -> Trace:
    """Read a Qwen-Bailian trace; its options are those of `kvsim.traces.readers.read`.

    Raises
    ------
    TraceError
        On bad input, naming file and line.
    """
    # Nothing says whether tokens that fill no block have an id.
    size = BlockSize(block_size, BLOCK_SIZE, partial=False)
    rows = Rows(size, partial_blocks)
    chats = _Chats()
    for line, where in decoded(source, Line):
        size.state(line.block_size, where)
        chat = chats.add(line.chat_id, line.parent_chat_id, where)
        row = (line.timestamp, chat, 0, line.input_length, line.output_length)
        rows.add(Row(line.hash_ids, where, *row))
    if chats.orphans:
        rows.builder.notes.append(
            f"{chats.orphans} requests go on from chats that are not in the file: those of one "
            "such parent are a session."
        )
    return rows.finish(source, "s", time_unit, session_of=chats.sessions())


class _Chats:
    """Chats by number in order of appearance, and what each goes on from."""

    def __init__(self) -> None:
        self._number: dict[int | str, int] = {}
        self._parent: list[int] = []
        self._where: list[str] = []  # of the row; "" of a parent that has none so far

    def add(self, chat: int | str, parent: int | str | None, where: str) -> int:
        number = self._of(chat)
        above = -1 if parent in (None, ROOT, str(ROOT), chat) else self._of(parent)
        if not self._where[number]:
            self._where[number], self._parent[number] = where, above
        elif self._parent[number] != above:
            raise TraceError(
                f"{where}: chat_id {chat} has parent_chat_id {parent}, "
                f"and another one in {self._where[number]}"
            )
        return number

    @property
    def orphans(self) -> int:
        """Chats whose parent is not in the file."""
        return sum(above >= 0 and not self._where[above] for above in self._parent)

    def sessions(self) -> np.ndarray:
        """Return int64[chats]: the session of each chat, in order of appearance.

        Raises
        ------
        TraceError
            If chats go on from each other in a circle.
        """
        root = np.array(self._parent, dtype=np.int64)
        own = np.arange(len(root))
        root = np.where(root < 0, own, root)
        for _ in range(len(root).bit_length()):  # each round doubles the links that are followed
            root = root[root]
        loose = np.flatnonzero(np.array(self._parent, dtype=np.int64)[root] >= 0)
        if len(loose):
            raise TraceError(
                f"{self._where[loose[0]]}: its parent_chat_id leads into a circle, to no root"
            )
        first = np.full(len(root), len(root))
        np.minimum.at(first, root, own)
        return np.unique(first[root], return_inverse=True)[1]

    def _of(self, chat: int | str) -> int:
        number = self._number.setdefault(chat, len(self._parent))
        if number == len(self._parent):
            self._parent.append(-1)
            self._where.append("")
        return number
