"""A source file that is read once: bytes, progress and hash together."""

import gzip
import hashlib
import io
import lzma
import tarfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

from kvsim.traces.trace import TraceError

BOM = b"\xef\xbb\xbf"
CHUNK = 1 << 20
DECOMPRESSORS: dict[bytes, Callable[[BinaryIO], Any]] = {
    b"\xfd7zXZ": lzma.open,
    b"\x1f\x8b": gzip.open,
}
DAMAGE = (EOFError, zlib.error, gzip.BadGzipFile, lzma.LZMAError, tarfile.TarError)


class Source:
    """Open a file (or list a folder) and follow how far it was read.

    Parameters
    ----------
    path : Path
        The file.
    progress : callable, optional
        Told (bytes read, bytes in all) at most once a chunk of 1 MiB.
    """

    def __init__(self, path: Path, progress: Callable[[int, int], None] | None = None) -> None:
        self.path = path
        self.size = path.stat().st_size
        self._progress = progress
        with path.open("rb") as file:
            self.head = file.read(16)

    def open(self) -> BinaryIO:
        """Return a buffered binary reader that reports progress."""
        return io.BufferedReader(_Watched(self.path, self.size, self._progress), CHUNK)  # type: ignore[return-value]

    def open_plain(self) -> BinaryIO:
        """Return a reader of the bytes after xz, gzip or no decompression."""
        raw = self.open()
        for magic, opener in DECOMPRESSORS.items():
            if self.head.startswith(magic):
                plain: BinaryIO = opener(raw)
                return plain
        return raw

    def digest(self) -> str:
        """Return the SHA-256 (hex) of the file's bytes."""
        with self.path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()


class _Watched(io.FileIO):
    def __init__(self, path: Path, size: int, progress: Callable[[int, int], None] | None) -> None:
        super().__init__(path, "rb")
        self._size = size
        self._told = progress

    def readinto(self, buffer) -> int:  # type: ignore[no-untyped-def, override]
        count = super().readinto(buffer) or 0
        if self._told:
            self._told(self.tell(), self._size)
        return count


def decode_error(where: str, text: bytes, error: Exception) -> TraceError:
    """Explain JSON that could not be decoded."""
    if text.strip() in (b"{", b"["):
        return TraceError(
            f"{where}: a lone {text.strip().decode()!r}: this looks like pretty-printed JSON; "
            "write one object a line (JSONL)"
        )
    return TraceError(f"{where}: not a complete JSON object of this format ({error})")
