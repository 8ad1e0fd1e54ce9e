"""WEKA / AgentX session JSON: a file or a line a session, sub-agents nested.

Read from a folder of ``.json`` files, one such file, JSONL, or a tar archive
in place. Sub-agents share their session's ids. Nested times are
relative to the sub-agent's marker or absolute: absolute if every nested `t` is
at least its marker's, decided once a file.
"""

import hashlib
import tarfile
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from math import nan
from pathlib import Path

import msgspec
import numpy as np
from xxhash import xxh3_128

from kvsim.traces.readers.builder import BATCH, LIMIT, TraceBuilder
from kvsim.traces.readers.ids import BlockIds
from kvsim.traces.readers.sizes import BlockSize
from kvsim.traces.readers.source import (
    BOM,
    CHUNK,
    DAMAGE,
    Source,
    decode_error,
    document_error,
)
from kvsim.traces.readers.units import UNITS, in_seconds
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
    block_size: int | None = None
    hash_id_scope: str = "local"


class Flat(msgspec.Struct):
    """A model call out of the nesting."""

    request: Request
    where: str
    file: int
    marker: float  # seconds of the markers above it
    subagent: bool


def read_weka(
    source: Source,
    *,
    block_size: int | None = None,
    nested: str | None = None,
    keep_repeats: bool = False,
    time_unit: str | None = None,
    partial_blocks: str = "continue",
) -> Trace:
    """Read WEKA or AgentX sessions; every session starts at its own time 0.

    The options are those of `kvsim.traces.readers.read`.

    Raises
    ------
    TraceError
        On bad input, naming file and line or entry.
    """
    decoder = msgspec.json.Decoder(Session)
    reader = _WekaReader(block_size, keep_repeats, time_unit, partial_blocks)
    digest = hashlib.sha256()
    for name, file, text in _ahead(documents(source)):
        try:
            session = decoder.decode(text)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise decode_error(name, text, error) from error
        if source.is_folder:
            digest.update(text)
        reader.add(session, name, file, text)
    if not reader.names:
        raise TraceError(f"{source.label}: no session (.json file or line) in it")
    return reader.finish(
        source.name, digest.hexdigest() if source.is_folder else source.digest(), nested
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


def documents(source: Source) -> Iterator[tuple[str, int, bytes]]:
    """Yield (name, file number, JSON text) of every session, streaming."""
    if source.is_folder:
        yield from _folder(source)
        return
    if source.is_tar:
        yield from _members(source)
        return
    first = source.first_line()
    if first and _fault(first[1]):
        yield source.label, 0, _whole_document(source)
        return
    for number, line in source.lines():
        yield f"{source.label}:{number}", 0, line


def _folder(source: Source) -> Iterator[tuple[str, int, bytes]]:
    files = sorted(source.path.glob("*.json"), key=lambda file: file.name.encode())
    total = sum(file.stat().st_size for file in files)
    done = 0
    for number, file in enumerate(files):
        text = file.read_bytes()
        done += len(text)
        if source.progress:
            source.progress(done, total)
        yield str(file), number, text.removeprefix(BOM)


def _members(source: Source) -> Iterator[tuple[str, int, bytes]]:
    name = ""
    try:
        with tarfile.open(fileobj=source.plain, mode="r|", bufsize=CHUNK) as archive:
            for number, member in enumerate(archive):
                name = member.name
                file = archive.extractfile(member) if name.endswith(".json") else None
                if file:
                    yield f"{source.label}:{name}", number, file.read().removeprefix(BOM)
                archive.members.clear()  # type: ignore[attr-defined]  # it would keep every header
            # An archive ends in two blocks of zeros or more; `tarfile` does without, and takes a
            # damaged header for the first.
            if archive.fileobj.read(tarfile.BLOCKSIZE) != bytes(tarfile.BLOCKSIZE):
                raise tarfile.ReadError("no end of the archive where one is expected")
    except DAMAGE as error:
        raise TraceError(
            f"{source.label}: cut off or damaged after {name or 'its start'} ({error})"
        ) from error


def _whole_document(source: Source) -> bytes:
    """Return the text of one JSON document over several lines."""
    text = b"".join(source.chunks())
    if fault := _fault(text):
        raise document_error(source, text, fault)
    return text


def _fault(text: bytes) -> msgspec.DecodeError | None:
    """Return what is wrong with a text as JSON."""
    try:
        msgspec.json.decode(text, type=msgspec.Raw)
    except msgspec.DecodeError as error:
        return error
    return None


class _WekaReader:
    def __init__(
        self,
        block_size: int | None,
        keep_repeats: bool,
        time_unit: str | None,
        partial_blocks: str,
    ) -> None:
        self.size = BlockSize(block_size, BLOCK_SIZE, partial=False)
        self.ids = BlockIds()
        self.keep_repeats = keep_repeats
        self.time_unit = time_unit
        self.partial_blocks = partial_blocks
        self.names: list[bytes] = []
        self.of_digest: dict[bytes, int] = {}
        self.repeats = 0
        self.file: list[int] = []
        self.marker: list[float] = []
        self.nested_time: dict[int, bool] = {}  # file: is some nested t below its marker?

    @cached_property
    def builder(self) -> TraceBuilder:
        return TraceBuilder(self.size.tokens, partial_blocks=self.partial_blocks)

    def add(self, session: Session, name: str, file: int, text: bytes) -> None:
        self.size.state(session.block_size, name)
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
        requests = [flat.request for flat in batch]
        where = [flat.where for flat in batch]
        arrays = [request.hash_ids or b"[]" for request in requests]
        ids, lengths = self.ids.parse(arrays, where)
        for flat in batch:
            _check(flat)
            if flat.subagent:
                below = flat.request.t < flat.marker
                self.nested_time[flat.file] = self.nested_time.get(flat.file, False) or below
        tokens = [request.input for request in requests]
        self.size.check(lengths, tokens, where, "in")
        second = UNITS[self.time_unit or "s"]
        self.file += [flat.file for flat in batch]
        self.marker += [flat.marker for flat in batch]
        self.builder.requests(
            arrival=[request.t for request in requests],
            session=[len(self.names) - 1] * len(batch),
            input_tokens=tokens,
            output_tokens=[request.output for request in requests],
            service=[nan if r.api_time is None else r.api_time / second for r in requests],
            subagent=[flat.subagent for flat in batch],
            terminal=self.builder.chains(ids, lengths, tokens, where, namespace=namespace),
        )

    def finish(self, name: str, source_hash: str, nested: str | None) -> Trace:
        if self.repeats:
            self.builder.notes.append(
                f"{self.repeats} sessions repeat another one except for its id and were dropped "
                "(--keep-repeats keeps them)."
            )
        relative = np.array([self.nested_time.get(file, False) for file in self.file], dtype=bool)
        if nested:
            relative[:] = nested == "relative"
        rank = np.empty(len(self.names), dtype=np.int64)
        rank[sorted(range(len(rank)), key=self.names.__getitem__)] = np.arange(len(rank))
        shift = np.where(relative, np.array(self.marker, dtype=np.float64), 0.0)
        arrival, notes = in_seconds(self.builder.arrival + shift, "s", given=self.time_unit)
        self.builder.notes += notes
        return self.builder.finish(
            name, source_hash, arrival=arrival, session_rank=rank, own_starts=True
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
