"""Published traces by name: the registry, verified copies in ``data/raw``, opening one."""

import difflib
import hashlib
import json
import os
import shutil
import tomllib
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from kvsim.traces import readers
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
from kvsim.traces.trace import Trace, load, write_atomically

PROJECT_DATA = Path(__file__).resolve().parents[2] / "data"
SAMPLE = "sample"
RECORDED = "recorded-hashes.txt"
CONNECTIONS = 4

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Entry:
    """A trace of the registry; ``data/registry.toml`` says what its fields mean."""

    name: str
    set: str
    path: str
    licence: str
    url: str = ""
    hub: str = ""
    revision: str = ""
    size: int | None = None
    about: int = 0
    sha256: str = ""
    git_blob: str = ""
    blobs: str = ""
    without: tuple[str, ...] = ()
    shared_with: str = ""
    archive: RemoteFile | None = None
    optional: bool = False

    @cached_property
    def files(self) -> tuple[RemoteFile, ...]:
        """The files as published: one, or the many of a folder."""
        if not self.blobs:
            return (RemoteFile(self.path, self.url, self.size, self.sha256, self.git_blob),)
        rows = (line.split() for line in _committed(self.blobs).read_text().splitlines())
        named = [(blob, Path(path).name) for blob, path in rows]
        return tuple(
            RemoteFile(f"{self.path}/{name}", f"{self.url}/{name}", git_blob=blob)
            for blob, name in named
            if name not in self.without
        )

    @property
    def source(self) -> str:
        """The repository that publishes the trace, for people."""
        if self.hub:
            return f"huggingface.co/datasets/{self.hub}"
        return f"github.com/{'/'.join(self.url.split('/')[3:5])}"


def data_folder() -> Path:
    """Return ``$KVSIM_DATA``, else the project's ``data`` folder."""
    return Path(os.environ.get("KVSIM_DATA") or PROJECT_DATA)


def raw_folder() -> Path:
    """Return the folder of fetched traces."""
    return data_folder() / "raw"


def registry() -> dict[str, Entry]:
    """Return the published traces by name."""
    with _committed("registry.toml").open("rb") as file:
        rows = tomllib.load(file)["trace"]
    return {row["name"]: _entry(row) for row in rows}


def known_names() -> list[str]:
    """Return the names that `open_trace` takes."""
    return [SAMPLE, *registry()]


def select(names: Iterable[str] = ()) -> list[Entry]:
    """Return the registry's entries of the given trace or set names.

    A set stands for all its traces but the optional ones, and no name at all
    for every set. A name that is both means the set.

    Raises
    ------
    FetchError
        If a name is neither a trace nor a set.
    """
    entries = registry()
    sets = {entry.set for entry in entries.values()}
    wanted = set(names) or sets
    for name in sorted(wanted - sets - entries.keys()):
        raise FetchError(_unknown(name, "neither a trace nor a set", sorted({*entries, *sets})))
    return [
        entry
        for entry in entries.values()
        if (entry.set in wanted and not entry.optional) or entry.name in wanted - sets
    ]


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


def open_trace(
    name_or_path: str | Path,
    *,
    progress: Callable[[int, int], None] | None = None,
    **options: Any,
) -> Trace:
    """Open a trace by its name in the registry, or from a path.

    A named trace is converted once; later calls open the saved form, which is
    made anew when the source, the options or the readers change.

    Parameters
    ----------
    name_or_path : str or Path
        A known name (which wins over a file of that name), or a file or
        folder that `kvsim.traces.readers.read` takes.
    progress : callable, optional
        Told (bytes read, bytes in all) while a source is read.
    **options
        Options of `kvsim.traces.readers.read`.

    Raises
    ------
    TraceError
        If the name is unknown, the trace is not fetched, or its content is bad.
    """
    name = str(name_or_path)
    if name not in known_names():
        if not Path(name).exists():
            raise FetchError(_unknown(name, "no such file and no known trace", known_names()))
        return readers.read(name, progress=progress, **options)
    source = _committed("sample.tar.xz") if name == SAMPLE else _source(registry()[name])
    given = {key: value for key, value in options.items() if value not in (None, False)}
    saved = _saved_form(name, source, given)
    if saved.exists():
        return load(saved)
    trace = replace(readers.read(source, progress=progress, **given), name=name)
    _keep(trace, saved)
    return trace


def _entry(row: dict[str, Any]) -> Entry:
    archive = RemoteFile(**row.pop("archive")) if "archive" in row else None
    return Entry(**row | {"without": tuple(row.get("without", ()))}, archive=archive)


def _committed(name: str) -> Path:
    """Return a data file of the project; a data folder elsewhere may bring its own."""
    own = data_folder() / name
    return own if own.exists() else PROJECT_DATA / name


def _unknown(name: str, what: str, known: list[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    return f"{name}: {what}; {hint}known: {', '.join(known)}"


def _source(entry: Entry) -> Path:
    """Return the file or folder of a fetched trace; a half-fetched one is an error."""
    raw = raw_folder()
    if entry.archive and (raw / entry.archive.path).exists():
        return raw / entry.archive.path
    have = sum((raw / file.path).exists() for file in entry.files)
    if have < len(entry.files):
        state = f"only {have} of its {len(entry.files)} files are" if have else "not"
        raise FetchError(
            f"{entry.name}: {state} in {raw}; get it with 'kvsim fetch {entry.name}', "
            "or all traces with 'make data'"
        )
    return raw / entry.path


def _saved_form(name: str, source: Path, options: dict[str, Any]) -> Path:
    # Size and time stand for the content here: hashing 2 GB would take longer than opening.
    files = sorted(source.iterdir()) if source.is_dir() else [source]
    stats = [(file.name, file.stat()) for file in files]
    state = [(label, stat.st_size, stat.st_mtime_ns) for label, stat in stats]
    how = _short_hash([options, _readers_hash()])
    return raw_folder() / "converted" / f"{name}-{how}-{_short_hash(state)}.npz"


def _readers_hash() -> str:
    package = Path(__file__).parent
    sources = [package / "trace.py", package / "radix.py", *sorted(package.glob("readers/*.py"))]
    return hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()


def _short_hash(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:12]


def _keep(trace: Trace, saved: Path) -> None:
    """Save a converted trace in place of its older forms."""
    try:
        trace.save(saved)
    except OSError:
        return  # a read-only data folder: read the source again next time
    for old in saved.parent.glob(f"{saved.stem.rpartition('-')[0]}-*.npz"):
        if old != saved:
            old.unlink(missing_ok=True)


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
