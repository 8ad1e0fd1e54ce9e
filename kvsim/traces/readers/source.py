"""A source that is read once, front to back: a file, a pipe or standard input."""

import bz2
import gzip
import hashlib
import io
import lzma
import re
import sys
import tarfile
import zlib
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO, Self

from kvsim.traces.trace import TraceError

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

STDIN = "-"
BOM = b"\xef\xbb\xbf"
CHUNK = 1 << 20
PIECE = 1 << 17  # decompressed at once
DECOMPRESSORS: dict[bytes, Callable[[BinaryIO], Any]] = {
    b"\xfd7zXZ": lzma.open,
    b"\x1f\x8b": gzip.open,
    b"BZh": bz2.open,
    b"\x28\xb5\x2f\xfd": zstd.open,
}
DAMAGE = (EOFError, OSError, zlib.error, lzma.LZMAError, zstd.ZstdError, tarfile.TarError)


class Source:
    """What a trace is read from; used as a context manager.

    Its bytes pass once, so that a pipe serves as well as a file. Whether they are compressed is
    told from the content.

    Parameters
    ----------
    path : str or Path
        File, pipe or folder; ``-`` is standard input.
    progress : callable, optional
        Told (bytes read, bytes in all) at most once a chunk of 1 MiB; of a pipe, 0 in all.

    Attributes
    ----------
    label : str
        What messages call it.
    name : str
        What its trace is called.
    is_folder : bool
        A folder has no bytes of its own; its reader lists it.
    """

    def __init__(
        self, path: str | Path, progress: Callable[[int, int], None] | None = None
    ) -> None:
        self.path = Path(path)
        self.progress = progress
        self._stdin = str(path) == STDIN
        self.label = "stdin" if self._stdin else str(path)
        self.name = "stdin" if self._stdin else self.path.name.split(".")[0]
        self.is_folder = not self._stdin and self.path.is_dir()
        self._line = 0
        self._first: tuple[int, bytes] | None = None
        self._rest = self._numbered()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if "_file" in self.__dict__ and not self._stdin:
            self._file.close()

    @cached_property
    def _file(self) -> Any:
        if self._stdin:
            return sys.stdin.buffer
        try:
            return self.path.open("rb", buffering=0)
        except OSError as error:
            raise TraceError(f"{self.label}: cannot be opened ({error.strerror})") from error

    @cached_property
    def _watched(self) -> "_Watched":
        size = 0 if self._stdin else self.path.stat().st_size  # 0 of a pipe, too
        return _Watched(self._file, size, self.progress)

    @cached_property
    def _raw(self) -> io.BufferedReader:
        return io.BufferedReader(self._watched, CHUNK)

    @cached_property
    def plain(self) -> io.BufferedReader:
        """The bytes after decompression."""
        magic = self._raw.peek()
        for start, opener in DECOMPRESSORS.items():
            if magic.startswith(start):
                return io.BufferedReader(_Unpacked(opener(self._raw)), PIECE)
        return self._raw

    @property
    def is_file_as_it_is(self) -> bool:
        """Whether this is a regular file, not compressed, which a library may open itself."""
        return not self._stdin and self.path.is_file() and self.plain is self._raw

    @cached_property
    def head(self) -> bytes:
        """The first plain bytes, as many as a tar header has if there are so many."""
        try:
            return self.plain.peek()[: tarfile.BLOCKSIZE]
        except DAMAGE as error:
            raise self._cut_off(1, error) from error

    @property
    def is_tar(self) -> bool:
        """Whether the plain bytes are a tar archive."""
        try:
            tarfile.TarInfo.frombuf(self.head, tarfile.ENCODING, "surrogateescape")
        except tarfile.EOFHeaderError:  # type: ignore[attr-defined]
            return True  # an archive without members
        except tarfile.HeaderError:
            return False
        return True

    def first_line(self) -> tuple[int, bytes] | None:
        """Return the first of `lines`, which will yield it again; None where there is none."""
        self._first = self._first or next(self._rest, None)
        return self._first

    def lines(self) -> Iterator[tuple[int, bytes]]:
        """Yield (line number, plain line), without a byte-order mark and blank lines."""
        if self._first:
            first, self._first = self._first, None
            yield first
        yield from self._rest

    def chunks(self) -> Iterator[bytes]:
        """Yield the plain bytes that have not been read."""
        if self._first:
            first, self._first = self._first, None
            yield first[1]
        try:
            while chunk := self.plain.read1(CHUNK):  # `read` would lose what precedes damage
                self._line += chunk.count(b"\n")
                yield chunk
        except DAMAGE as error:
            raise self._cut_off(self._line + 1, error) from error

    def digest(self) -> str:
        """Read to the end and return the SHA-256 (hex) of all bytes as they came."""
        for _ in self.chunks():
            pass
        del self.plain  # a decompressor can hold hundreds of megabytes
        while self._raw.read(CHUNK):
            pass
        return self._watched.hash.hexdigest()

    def _numbered(self) -> Iterator[tuple[int, bytes]]:
        try:
            for number, line in enumerate(self.plain, 1):
                line = line.removeprefix(BOM) if number == 1 else line
                self._line = number
                if line.strip():
                    yield number, line
        except DAMAGE as error:
            raise self._cut_off(self._line + 1, error) from error

    def _cut_off(self, line: int, error: BaseException) -> TraceError:
        return TraceError(f"{self.label}:{line}: the data is cut off or damaged ({error})")


class _Watched(io.RawIOBase):
    """Fill whole buffers, also from pipes; hash the bytes and tell how many there were."""

    def __init__(self, file: Any, size: int, progress: Callable[[int, int], None] | None) -> None:
        self._file = file
        self._size = size
        self._told = progress
        self._done = 0
        self.hash = hashlib.sha256()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer) -> int:  # type: ignore[no-untyped-def, override]
        view = memoryview(buffer)
        count = 0
        while count < len(view) and (more := self._file.readinto(view[count:])):
            count += more
        self.hash.update(view[:count])
        self._done += count
        if self._told:
            self._told(self._done, self._size)
        return count


class _Unpacked(io.RawIOBase):
    """Fill whole buffers with decompressed bytes, up to where the data is damaged."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self._fault: Exception | None = None

    def readable(self) -> bool:
        return True

    def readinto(self, buffer) -> int:  # type: ignore[no-untyped-def, override]
        if self._fault:
            raise self._fault
        view = memoryview(buffer)
        count = 0
        try:
            while more := self._file.read1(min(PIECE, len(view) - count)):
                view[count : count + len(more)] = more
                count += len(more)
        except DAMAGE as error:
            if not count:
                raise
            self._fault = error  # what came before it is read first
        return count


def decode_error(where: str, text: bytes, error: Exception) -> TraceError:
    """Explain JSON that could not be decoded."""
    if text.strip() in (b"{", b"["):
        return TraceError(
            f"{where}: a lone {text.strip().decode()!r}: this looks like pretty-printed JSON; "
            "write one object a line (JSONL)"
        )
    return TraceError(f"{where}: not a complete JSON object of this format ({error})")


def document_error(source: Source, text: bytes, error: Exception) -> TraceError:
    """Explain a JSON document over several lines that could not be decoded."""
    first = text.split(b"\n", 1)[0]
    if first.strip() not in (b"{", b"[") or "trailing" in str(error):
        return decode_error(f"{source.label}:1", first, error)
    at = re.search(r"byte (\d+)", str(error))
    line = 1 + text[: int(at[1]) if at else len(text)].rstrip().count(b"\n")
    return TraceError(f"{source.label}:{line}: the JSON document is cut off or damaged ({error})")
