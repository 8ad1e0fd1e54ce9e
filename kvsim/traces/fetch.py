"""Bringing published traces into the raw folder, each file verified."""

import os
import shutil
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import replace
from pathlib import Path

from kvsim.traces.download import (
    FetchError,
    Patience,
    RemoteFile,
    check,
    download,
    is_right,
    on_hub,
    require_space,
    sha256,
)
from kvsim.traces.registry import Entry, raw_folder, select
from kvsim.traces.trace import write_atomically

RECORDED = "recorded-hashes.txt"
CONNECTIONS = 4

Progress = Callable[[str, int, int], None]


def fetch(
    names: Iterable[str] = (),
    *,
    mirror: str | Path | None = None,
    raw: str | Path | None = None,
    progress: Progress | None = None,
    say: Callable[[str], None] = print,
    patience: Patience | None = None,
) -> list[str]:
    """Bring published traces into the raw folder, each file verified.

    A trace that is already there and right is left alone. Whatever arrives
    is written beside its place, checked, and only then moved there. An
    interrupted download goes on where it stopped.

    Parameters
    ----------
    names : iterable of str
        Traces or sets; none for all but the optional ones.
    mirror : path, optional
        Local folder to copy from, laid out like the raw folder; traces that
        it lacks are passed over. Without it the traces are downloaded.
    raw : path, optional
        Target, `raw_folder` by default.
    progress : callable, optional
        Told (trace, done, total) in bytes or, for a folder, in files.
    say : callable
        Told a line a trace: what was done, its licence, its source.
    patience : Patience, optional
        Attempts and time-outs.

    Returns
    -------
    list of str
        Names of the traces that are now in the raw folder.

    Raises
    ------
    FetchError
        If a name is unknown or the disk too full, before anything is done;
        after all traces were tried, if any of them could not be had.
    """
    target = Path(raw or raw_folder())
    wanted = select(names)
    if mirror is not None and not Path(mirror).is_dir():
        raise FetchError(f"{mirror}: no such folder; a mirror holds, say, {wanted[0].path}")
    lacking = [entry for entry in wanted if not present(entry, target)]
    if mirror is None:
        require_space(target, sum(entry.size or entry.about for entry in lacking))
    had, failed = [], []
    for entry in wanted:
        try:
            if entry not in lacking:
                done = "already here, verified"
            elif mirror is not None:
                done = _copy(entry, Path(mirror), target)
            else:
                done = _download(entry, target, progress, patience or Patience())
        except FetchError as error:
            failed.append(f"{entry.name} ({error})")
            continue
        say(f"{entry.name}: {done or 'not in the mirror'} [{entry.licence}, {entry.source}]")
        if done:
            had.append(entry.name)
    if failed:
        raise FetchError(f"not fetched: {'; '.join(failed)}")
    if not had:
        raise FetchError(f"{mirror}: holds none of these traces; expected {wanted[0].path}")
    return had


def present(entry: Entry, raw: Path) -> bool:
    """Return whether the whole trace is in `raw`, every file as published."""
    if entry.archive and is_right(raw / entry.archive.path, entry.archive):
        return True
    return all(is_right(raw / file.path, _as_recorded(file, raw)) for file in entry.files)


def _copy(entry: Entry, mirror: Path, raw: Path) -> str:
    files = entry.files
    if entry.archive and (mirror / entry.archive.path).is_file():
        files = (entry.archive,)
    if not all((mirror / file.path).is_file() for file in files):
        return ""
    for file in files:
        target = raw / file.path
        part = target.with_name(f"{target.name}.part")
        part.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(mirror / file.path, part)
        try:
            check(part, _as_recorded(file, raw))
        except FetchError:
            part.unlink()
            raise
        os.replace(part, target)
        _record(file, raw)
    return f"copied from {mirror}, verified"


def _download(entry: Entry, raw: Path, progress: Progress | None, patience: Patience) -> str:
    if entry.blobs:
        return _download_folder(entry, raw, progress, patience)
    file = _as_recorded(entry.files[0], raw)
    if entry.hub and not file.url:
        file = on_hub(entry.hub, entry.revision, file)

    def told(done: int, total: int) -> None:
        if progress:
            progress(entry.name, done, total or entry.about)

    download(file, raw / file.path, patience, told)
    _record(replace(entry.files[0], url=file.url), raw)
    return "downloaded, verified"


def _download_folder(entry: Entry, raw: Path, progress: Progress | None, patience: Patience) -> str:
    lacking = [file for file in entry.files if not is_right(raw / file.path, file)]
    here = len(entry.files) - len(lacking)
    with ThreadPoolExecutor(CONNECTIONS) as pool:
        jobs = [pool.submit(_obtain, file, entry, raw, patience) for file in lacking]
        try:
            for done, job in enumerate(as_completed(jobs), here + 1):
                job.result()
                if progress:
                    progress(entry.name, done, len(entry.files))
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    return f"{len(entry.files)} files downloaded, each verified"


def _obtain(file: RemoteFile, entry: Entry, raw: Path, patience: Patience) -> None:
    target = raw / file.path
    twin = raw / entry.shared_with / target.name
    if not entry.shared_with or not is_right(twin, file):
        download(file, target, patience)
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    target.unlink(missing_ok=True)
    try:
        os.link(twin, target)
    except OSError:  # a file system without hard links
        shutil.copyfile(twin, target)


def _recorded(raw: Path) -> dict[str, tuple[str, str]]:
    """Return (sha256, url) by path, as written at the first download."""
    ledger = raw / RECORDED
    if not ledger.exists():
        return {}
    rows = (line.split() for line in ledger.read_text().splitlines())
    return {path: (digest, url) for digest, path, url in rows}


def _as_recorded(file: RemoteFile, raw: Path) -> RemoteFile:
    """Return the file with the hash and address of its first download, if it has no hash."""
    if file.pinned or file.path not in (known := _recorded(raw)):
        return file
    digest, url = known[file.path]
    return replace(file, sha256=digest, url=url if url != "-" else file.url)


def _record(file: RemoteFile, raw: Path) -> None:
    known = _recorded(raw)
    if file.pinned or file.path in known:
        return
    known[file.path] = (sha256(raw / file.path), file.url or "-")
    lines = (f"{digest}  {path}  {url}\n" for path, (digest, url) in sorted(known.items()))
    write_atomically(raw / RECORDED, lambda stream: stream.write("".join(lines).encode()))
