"""WEKA / AgentX session JSON: a file or a line a session, sub-agents nested.

Read from a folder of ``.json`` files, one such file, JSONL (plain or gzip), or
a tar archive in place. Sub-agents share their session's ids. Nested times are
relative to the sub-agent's marker or absolute: absolute if every nested `t` is
at least its marker's, decided once a file.
"""

import hashlib
import tarfile
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from math import nan
from pathlib import Path

import msgspec
import numpy as np
from xxhash import xxh3_128

from kvsim.traces.readers.builder import BATCH, LIMIT, TraceBuilder
from kvsim.traces.readers.ids import BlockIds
from kvsim.traces.readers.mooncake import lines
from kvsim.traces.readers.source import BOM, CHUNK, DAMAGE, Source, decode_error
from kvsim.traces.trace import Trace, TraceError

BLOCK_SIZE = 64  # of all published sets, where a session does not say
AHEAD = 4  # sessions unpacked while one is added


class Request(msgspec.Struct, rename={"input": "in", "output": "out"}):
    """A model call, or a sub-agent's marker with its own requests."""

    t: float
    type: str = "n"
    input: int = 0
    output: int = 0
    hash_ids: msgspec.Raw = msgspec.Raw()
    api_time: float | None = None
    requests: "list[Request] | None" = None


class Session(msgspec.Struct):
    """One session; unknown fields are ignored."""

    requests: list[Request]
    id: msgspec.Raw = msgspec.Raw()
    block_size: int = BLOCK_SIZE
    hash_id_scope: str = "local"


class Flat(msgspec.Struct):
    """A model call out of the nesting."""

    request: Request
    where: str
    file: int
    marker: float  # seconds of the markers above it
    subagent: bool


def read_weka(
    path: Path,
    *,
    block_size: int | None = None,
    nested: str | None = None,
    keep_repeats: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Trace:
    """Read WEKA or AgentX sessions; every session starts at its own time 0.

    Parameters
    ----------
    path : Path
        Folder of ``.json`` files, one file, JSONL (``.gz`` too) or a tar archive.
    block_size : int, optional
        Tokens a block; must agree with what the sessions say.
    nested : {"relative", "absolute"}, optional
        How sub-agents' times count; found by rule unless given.
    keep_repeats : bool
        Keep sessions that repeat another one except for its id.
    progress : callable, optional
        Told (bytes read, bytes in all).

    Raises
    ------
    TraceError
        On bad input, naming file and line or entry.
    """
    decoder = msgspec.json.Decoder(Session)
    reader: _WekaReader | None = None
    digest = hashlib.sha256()
    for name, file, text in _ahead(documents(path, progress)):
        try:
            session = decoder.decode(text)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise decode_error(name, text, error) from error
        if path.is_dir():
            digest.update(text)
        if reader is None:
            reader = _WekaReader(block_size or session.block_size, keep_repeats)
        reader.add(session, name, file, text)
    if reader is None:
        raise TraceError(f"{path}: no session (.json file or line) in it")
    return reader.finish(
        path.name.split(".")[0],
        digest.hexdigest() if path.is_dir() else Source(path).digest(),
        nested,
    )


def _ahead(documents: Iterator[tuple[str, int, bytes]]) -> Iterator[tuple[str, int, bytes]]:
    """Yield the documents, unpacking the next ones meanwhile."""
    with ThreadPoolExecutor(1) as thread:
        following = deque(thread.submit(next, documents, None) for _ in range(AHEAD))
        while document := following.popleft().result():
            following.append(thread.submit(next, documents, None))
            yield document


def _anonymous(text: bytes, own: bytes) -> bytes:
    """Return the digest of a session's text without its id."""
    at = text.find(own)
    digest = xxh3_128(memoryview(text)[:at])  # texts are large, so none is copied
    digest.update(memoryview(text)[at + len(own) :])
    return digest.digest()


def documents(
    path: Path, progress: Callable[[int, int], None] | None
) -> Iterator[tuple[str, int, bytes]]:
    """Yield (name, file number, JSON text) of every session, streaming."""
    if path.is_dir():
        yield from _folder(path, progress)
        return
    source = Source(path, progress)
    if tarfile.is_tarfile(path):
        yield from _members(source)
        return
    text = b"" if source.head.startswith(b"\x1f\x8b") else _whole_document(path)
    if text:
        yield str(path), 0, text
        return
    for number, line in lines(source):
        yield f"{path}:{number}", 0, line


def _folder(
    path: Path, progress: Callable[[int, int], None] | None
) -> Iterator[tuple[str, int, bytes]]:
    files = sorted(path.glob("*.json"), key=lambda file: file.name.encode())
    total = sum(file.stat().st_size for file in files)
    done = 0
    for number, file in enumerate(files):
        text = file.read_bytes()
        done += len(text)
        if progress:
            progress(done, total)
        yield str(file), number, text.removeprefix(BOM)


def _members(source: Source) -> Iterator[tuple[str, int, bytes]]:
    name = ""
    try:
        with (
            source.open_plain() as raw,
            tarfile.open(fileobj=raw, mode="r|", bufsize=CHUNK) as archive,
        ):
            for number, member in enumerate(archive):
                name = member.name
                file = archive.extractfile(member) if name.endswith(".json") else None
                if file:
                    yield f"{source.path}:{name}", number, file.read().removeprefix(BOM)
                archive.members.clear()  # type: ignore[attr-defined]  # it would keep every header
    except DAMAGE as error:
        raise TraceError(
            f"{source.path}: cut off or damaged after {name or 'its start'} ({error})"
        ) from error


def _whole_document(path: Path) -> bytes:
    """Return the text of a file that is one JSON document over several lines, else b""."""
    with path.open("rb") as file:
        first = file.readline().removeprefix(BOM)
        try:
            msgspec.json.decode(first, type=msgspec.Raw)
            return b""
        except msgspec.DecodeError:
            text = first + file.read()
    try:
        msgspec.json.decode(text, type=msgspec.Raw)
    except msgspec.DecodeError:
        return b""
    return text


class _WekaReader:
    def __init__(self, block_size: int, keep_repeats: bool) -> None:
        self.builder = TraceBuilder(block_size)
        self.ids = BlockIds()
        self.keep_repeats = keep_repeats
        self.names: list[bytes] = []
        self.of_digest: dict[bytes, int] = {}
        self.repeats = 0
        self.file: list[int] = []
        self.marker: list[float] = []
        self.nested_time: dict[int, bool] = {}  # file: is some nested t below its marker?

    def add(self, session: Session, name: str, file: int, text: bytes) -> None:
        if session.block_size < 1:
            raise TraceError(
                f"{name}: block_size is {session.block_size}; it must be at least 1 token"
            )
        if session.block_size != self.builder.block_size:
            raise TraceError(
                f"{name}: block_size {session.block_size}; "
                f"the trace is read with {self.builder.block_size}"
            )
        if session.hash_id_scope not in ("local", "global"):
            raise TraceError(
                f"{name}: hash_id_scope is {session.hash_id_scope!r}; it must be local or global"
            )
        key = name.rsplit(":", 1)[-1] if not name.rsplit(":", 1)[-1].isdigit() else ""
        sort_key = Path(key).name.encode() if key else b"%020d" % int(name.rsplit(":", 1)[-1])
        if not self.keep_repeats and self._repeats(session, sort_key, text):
            return
        self.names.append(sort_key)
        namespace = len(self.names) if session.hash_id_scope == "local" else 0
        for batch in _batches(_flatten(session.requests, name, file, 0.0, False)):
            self._add_requests(batch, namespace)

    def _repeats(self, session: Session, sort_key: bytes, text: bytes) -> bool:
        anonymous = _anonymous(text.strip(), bytes(session.id))
        first = self.of_digest.setdefault(anonymous, len(self.names))
        if first == len(self.names):
            return False
        self.repeats += 1
        self.names[first] = min(self.names[first], sort_key)
        return True

    def _add_requests(self, batch: list[Flat], namespace: int) -> None:
        size = self.builder.block_size
        requests = [flat.request for flat in batch]
        where = [flat.where for flat in batch]
        arrays = [request.hash_ids or b"[]" for request in requests]
        ids, lengths = self.ids.parse(arrays, where)
        tokens = []
        for flat, blocks in zip(batch, lengths.tolist(), strict=True):
            _check(flat)
            input_tokens = flat.request.input
            floor, ceil = input_tokens // size, -(-input_tokens // size)
            if blocks not in (floor, ceil):
                raise TraceError(
                    f"{flat.where}: {blocks} hash_ids for in {input_tokens}; blocks of {size} "
                    f"tokens need {floor} (full blocks only) or {ceil}"
                )
            tokens.append(min(input_tokens, blocks * size))
            if flat.subagent:
                below = flat.request.t < flat.marker
                self.nested_time[flat.file] = self.nested_time.get(flat.file, False) or below
        self.file += [flat.file for flat in batch]
        self.marker += [flat.marker for flat in batch]
        self.builder.requests(
            arrival=[request.t for request in requests],
            session=[len(self.names) - 1] * len(batch),
            input_tokens=[request.input for request in requests],
            output_tokens=[request.output for request in requests],
            service=[nan if r.api_time is None else r.api_time for r in requests],
            subagent=[flat.subagent for flat in batch],
            terminal=self.builder.chains(ids, lengths, tokens, where, namespace=namespace),
        )

    def finish(self, name: str, source_hash: str, nested: str | None) -> Trace:
        if self.repeats:
            self.builder.notes.append(
                f"{self.repeats} sessions repeat another one except for its id and were dropped."
            )
        relative = np.array([self.nested_time.get(file, False) for file in self.file], dtype=bool)
        if nested:
            relative[:] = nested == "relative"
        rank = np.empty(len(self.names), dtype=np.int64)
        rank[sorted(range(len(rank)), key=self.names.__getitem__)] = np.arange(len(rank))
        shift = np.where(relative, np.array(self.marker, dtype=np.float64), 0.0)
        return self.builder.finish(
            name, source_hash, session_rank=rank, shift=shift, own_starts=True
        )


def _flatten(
    requests: list[Request], name: str, file: int, marker: float, subagent: bool
) -> Iterator[Flat]:
    for row, request in enumerate(requests):
        where = f"{name}, request {row}"
        if request.type == "subagent" or request.requests is not None:
            inner = request.requests or []
            yield from _flatten(inner, f"{where}, sub-agent", file, marker + request.t, True)
        else:
            yield Flat(request, where, file, marker, subagent)


def _batches(flats: Iterator[Flat]) -> Iterator[list[Flat]]:
    """Yield the calls in lists whose ids are parsed together."""
    batch: list[Flat] = []
    size = 0
    for flat in flats:
        batch.append(flat)
        size += len(flat.request.hash_ids)
        if size >= BATCH:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _check(flat: Flat) -> None:
    request = flat.request
    for field, value in (
        ("t", request.t),
        ("in", request.input),
        ("out", request.output),
        ("api_time", request.api_time or 0),
    ):
        if not 0 <= value < LIMIT:
            raise TraceError(f"{flat.where}: {field} is {value}; it must be 0 or more, below 2^63")
