"""Opening a trace: by a known name or a path, arranged and ready to be replayed."""

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from kvsim.traces import readers
from kvsim.traces.arrivals import DEFAULT_WINDOW, arrange
from kvsim.traces.download import FetchError
from kvsim.traces.registry import (
    SAMPLE,
    Entry,
    committed,
    known_names,
    raw_folder,
    registry,
    unknown,
)
from kvsim.traces.trace import Trace, TraceError, load


def open_trace(
    name_or_path: str | Path,
    *,
    window: float | str | None = DEFAULT_WINDOW,
    seed: int = 0,
    sessions: int | None = None,
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
    window : float or str, optional
        Seconds, or a duration such as ``"8h"``, in which sessions start where
        the trace does not say when; 0 starts all at once. None leaves every
        session on its own clock, to be arranged before it is replayed.
    seed : int
        Of session starts and of the sub-sample.
    sessions : int, optional
        Keep this many sessions, drawn without replacement.
    progress : callable, optional
        Told (bytes read, bytes in all) while a source is read.
    **options
        Options of `kvsim.traces.readers.read`.

    Raises
    ------
    TraceError
        If the name is unknown, the trace is not fetched, its content is bad,
        or the sessions cannot be arranged as asked.
    """
    if not isinstance(name_or_path, str | Path):
        raise TraceError(f"a trace is opened by name or path, not by {name_or_path!r}")
    trace = _opened(str(name_or_path), progress, options)
    if window is None:
        if sessions is not None:
            raise TraceError("a sub-sample of sessions needs a window; arrange() draws both")
        return trace
    return arrange(trace, window, seed, sessions)


def _opened(
    name: str, progress: Callable[[int, int], None] | None, options: dict[str, Any]
) -> Trace:
    if name not in known_names():
        if name != "-" and not Path(name).exists():
            raise FetchError(unknown(name, "no such file and no known trace", known_names()))
        return readers.read(name, progress=progress, **options)
    source = committed("sample.tar.xz") if name == SAMPLE else _source(registry()[name])
    given = {key: value for key, value in options.items() if value not in (None, False)}
    saved = _saved_form(name, source, given)
    if saved.exists():
        return load(saved)
    trace = replace(readers.read(source, progress=progress, **given), name=name)
    _keep(trace, saved)
    return trace


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
