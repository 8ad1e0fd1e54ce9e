"""One published file: what is known of it, checking it, downloading it with resume and retries."""

import hashlib
import os
import re
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

from kvsim.traces.trace import TraceError

FULL_GIT_ID = 40
FULL_SHA256 = 64
CHUNK = 1 << 16
LONGEST_PAUSE = 60.0
# Client errors that pass with time: time-out, too many requests.
PASSING = {408, 429}
RANGE_NOT_SATISFIABLE = 416
WRAPPED_IN = re.compile(r"^HTTPS?Connection(Pool)?\(.*?\): ")


class FetchError(TraceError):
    """A trace could not be had; the message says which, why, and what to do."""


class CorruptError(FetchError):
    """A file is not the published one."""


@dataclass(frozen=True)
class Patience:
    """How long to insist on a download.

    Parameters
    ----------
    attempts : int
        Tries a file; each goes on where the last one stopped.
    pause : float
        Seconds before the second try, doubled before each further one.
    timeout : float
        Seconds without a byte after which a connection counts as stalled.
    """

    attempts: int = 6
    pause: float = 1.0
    timeout: float = 30.0


@dataclass(frozen=True)
class RemoteFile:
    """One published file and what is known of its content.

    Parameters
    ----------
    path : str
        Place below the raw folder, and below a local mirror.
    url : str
        Where it is published.
    size : int, optional
        Bytes.
    sha256, git_blob : str
        Hex; empty where unknown. A git blob id may be only its beginning.
    """

    path: str
    url: str = ""
    size: int | None = None
    sha256: str = ""
    git_blob: str = ""

    @property
    def pinned(self) -> bool:
        """Whether a full hash is known."""
        return bool(self.sha256) or len(self.git_blob) == FULL_GIT_ID


def check(path: Path, file: RemoteFile) -> None:
    """Compare a file on disk with all that is known of the published one.

    Raises
    ------
    CorruptError
        Naming the file, what it is and what was expected.
    """
    size = path.stat().st_size
    if file.size is not None and size != file.size:
        raise CorruptError(f"{file.path}: {size:,} bytes, expected {file.size:,}; not kept")
    if file.sha256 and (found := sha256(path)) != file.sha256:
        raise CorruptError(f"{file.path}: sha256 is {found}, expected {file.sha256}; not kept")
    if file.git_blob and not (found := git_blob_id(path)).startswith(file.git_blob):
        raise CorruptError(f"{file.path}: git blob is {found}, expected {file.git_blob}; not kept")


def is_right(path: Path, file: RemoteFile) -> bool:
    """Return whether `path` exists and is the published file."""
    try:
        check(path, file)
    except (FileNotFoundError, CorruptError):
        return False
    return True


def sha256(path: Path) -> str:
    """Return the SHA-256 (hex) of a file's content."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def git_blob_id(path: Path) -> str:
    """Return the SHA-1 (hex) by which git names a file's content."""
    header = f"blob {path.stat().st_size}\0".encode()
    with path.open("rb") as stream:
        start = hashlib.sha1(header, usedforsecurity=False)
        return hashlib.file_digest(stream, lambda: start).hexdigest()


def require_space(folder: Path, needed: int) -> None:
    """Raise FetchError unless the disk that holds `folder` has `needed` bytes free."""
    existing = next(path for path in (folder, *folder.resolve().parents) if path.exists())
    free = shutil.disk_usage(existing).free
    if free < needed:
        raise FetchError(
            f"{folder}: {needed / 1e6:,.0f} MB needed, {free / 1e6:,.0f} MB free on that disk; "
            "free some, or set KVSIM_DATA to a folder elsewhere"
        )


def on_hub(
    repository: str, revision: str, file: RemoteFile, endpoint: str | None = None
) -> RemoteFile:
    """Return `file` with its address on the Hugging Face Hub, pinned to a commit.

    Parameters
    ----------
    repository : str
        Data set, ``owner/name``; the file is looked for at its root.
    revision : str
        Commit, branch or tag.
    file : RemoteFile
        Unless its hash is known, the Hub is asked for commit, size and hash.
    endpoint : str, optional
        Another hub, for instance a mirror.
    """
    try:
        import huggingface_hub as hub
    except ImportError as error:
        raise FetchError(
            f"huggingface.co/datasets/{repository}: needs huggingface_hub; "
            "install it with: pip install 'kvsim[hub]'"
        ) from error
    name = Path(file.path).name

    def address(revision: str) -> str:
        return hub.hf_hub_url(
            repository, name, repo_type="dataset", revision=revision, endpoint=endpoint
        )

    if file.pinned:
        return replace(file, url=address(revision))
    try:
        found = hub.get_hf_file_metadata(address(revision))
    except Exception as error:  # what the Hub's client raises differs between its versions
        raise FetchError(
            f"{address(revision)}: {type(error).__name__}: {error}; check the network, "
            "and run it again"
        ) from error
    etag = found.etag or ""
    return replace(
        file,
        url=address(found.commit_hash or revision),
        size=found.size,
        sha256=etag if len(etag) == FULL_SHA256 else "",
        git_blob=etag if len(etag) == FULL_GIT_ID else "",
    )


def download(
    file: RemoteFile,
    target: Path,
    patience: Patience,
    progress: Callable[[int, int], None] | None = None,
    say: Callable[[str], None] | None = None,
) -> None:
    """Download one file to `target`, which appears only once it is complete and right.

    What has arrived waits in ``<target>.part``; the next attempt, or the
    next call, asks for the rest.

    Parameters
    ----------
    file : RemoteFile
        What to download and what it must be.
    target : Path
        Its place.
    patience : Patience
        Attempts and time-outs.
    progress : callable, optional
        Told (bytes here, bytes in all or 0 where unknown).
    say : callable, optional
        Told why a try failed that will be repeated, and when.

    Raises
    ------
    FetchError
        If the server refuses, or the attempts ran out.
    CorruptError
        If the whole file arrived but is not the published one.
    """
    from requests import RequestException

    part = target.with_name(f"{target.name}.part")
    part.parent.mkdir(parents=True, exist_ok=True)
    why = ""
    for attempt in range(patience.attempts):
        if attempt:
            pause = min(patience.pause * 2 ** (attempt - 1), LONGEST_PAUSE)
            if say:
                say(
                    f"{target.name}: try {attempt} of {patience.attempts} failed ({why}); "
                    f"again in {pause:g} s"
                )
            time.sleep(pause)
        resumed = _size(part)
        require_space(part.parent, (file.size or 0) - resumed)
        try:
            _transfer(file, part, patience.timeout, progress)
            check(part, file)
        except CorruptError:
            part.unlink()
            # The rest may have been put behind a beginning it does not fit: once more, in full.
            if not resumed:
                raise
            why = "what came does not fit its beginning"
        except RequestException as error:
            why = _explain(error, file.url)
        else:
            os.replace(part, target)
            return
    raise FetchError(
        f"{file.url}: gave up after {patience.attempts} attempts ({why}); check the network, "
        f"and run it again to go on from byte {_size(part):,}"
    )


def _transfer(
    file: RemoteFile, part: Path, timeout: float, progress: Callable[[int, int], None] | None
) -> None:
    """Append to `part` what it lacks of the file."""
    from pooch import HTTPDownloader
    from requests import HTTPError

    done = _size(part)
    if file.size is not None and done >= file.size:
        return
    # Compressed transfer would make byte positions meaningless.
    headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={done}-"} if done else {})
    with part.open("ab") as stream:
        meter = _Meter(stream, file.size or 0, progress)
        get = HTTPDownloader(progressbar=meter, chunk_size=CHUNK, headers=headers, timeout=timeout)
        try:
            get(file.url, stream, None)
        except HTTPError as error:
            if error.response is None or error.response.status_code != RANGE_NOT_SATISFIABLE:
                raise


class _Meter:
    """What pooch asks of a progress bar; counts the bytes in the file, not those of this try."""

    total = 0

    def __init__(
        self, stream: BinaryIO, size: int, progress: Callable[[int, int], None] | None
    ) -> None:
        self._stream = stream
        self._size = size
        self._progress = progress

    def update(self, _: int) -> None:
        if self._progress:
            self._progress(self._stream.tell(), self._size)

    def reset(self) -> None:
        """Do nothing; there is no count to start over."""

    def close(self) -> None:
        """Do nothing; the caller owns the display."""


def _explain(error: Any, url: str) -> str:
    """Return why a try failed, in a few words; raise FetchError if trying again is no use."""
    if error.response is None:
        return _innermost(error)
    status = error.response.status_code
    if status // 100 == 4 and status not in PASSING:
        raise FetchError(
            f"{url}: the server answers {status} {error.response.reason}; the file may have moved"
        ) from error
    return f"status {status} {error.response.reason}"


def _innermost(error: Exception) -> str:
    """Return what went wrong on the wire, without the layers of clients around it."""
    cause = error.args[0] if error.args else error
    cause = getattr(cause, "reason", cause)
    told = getattr(cause, "args", ())
    return WRAPPED_IN.sub("", str(told[0] if told and isinstance(told[0], str) else cause))


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
