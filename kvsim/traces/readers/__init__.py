"""Trace formats: one file a format and one line in `READERS`."""

import inspect
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from kvsim.traces.readers.mooncake import lines, read_mooncake
from kvsim.traces.readers.source import Source
from kvsim.traces.readers.weka import read_weka
from kvsim.traces.trace import Trace, TraceError, load

READERS: dict[str, Callable[..., Trace]] = {
    "mooncake": read_mooncake,
    "weka": read_weka,
    "kvsim": load,
}


def read(path: str | Path, format: str | None = None, **options: Any) -> Trace:
    """Read a trace of any known format.

    Parameters
    ----------
    path : str or Path
        File or folder.
    format : str, optional
        A key of `READERS`; recognised from the content unless given.
    **options
        What the format's reader takes (`block_size`, `rows`, `nested`,
        `keep_repeats`, `progress`); None means not given.

    Raises
    ------
    TraceError
        If the path or format is unknown, an option does not fit the format,
        or the content is bad.
    """
    path = Path(path)
    if not path.exists():
        raise TraceError(f"{path}: no such file or folder")
    if format is not None and format not in READERS:
        raise TraceError(f"format {format!r} is unknown; known: {', '.join(READERS)}")
    name = format or recognise(path)
    reader = READERS[name]
    given = {key: value for key, value in options.items() if value not in (None, False)}
    known = inspect.signature(reader).parameters
    for option in given.keys() - known.keys() - {"progress"}:
        raise TraceError(f"{path}: option {option} does not apply to the format {name}")
    return reader(path, **{key: value for key, value in given.items() if key in known})


def recognise(path: Path) -> str:
    """Return the key of `READERS` that the content of `path` calls for."""
    if path.is_dir() or tarfile.is_tarfile(path):
        return "weka"
    source = Source(path)
    if source.head.startswith(b"PK"):
        return "kvsim"
    for _, line in lines(source):
        return _format_of(path, line)
    return "mooncake"  # empty: a trace without requests


def _format_of(path: Path, line: bytes) -> str:
    try:
        keys = msgspec.json.decode(line, type=dict[str, msgspec.Raw]).keys()
    except (msgspec.DecodeError, UnicodeDecodeError):
        # Either one document over several lines, or damage that the reader will name.
        return "weka" if line.strip() == b"{" or b'"requests"' in line else "mooncake"
    if "requests" in keys:
        return "weka"
    if keys & {"hash_ids", "timestamp", "created_time", "input_length", "input_tokens"}:
        return "mooncake"
    raise TraceError(
        f"{path}:1: an object with the fields {', '.join(sorted(keys)) or '(none)'} is of no "
        f"known format; known: {', '.join(READERS)}"
    )
