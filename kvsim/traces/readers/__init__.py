"""Trace formats: one file a format and one line in `READERS`."""

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from kvsim.traces.readers.bailian import read_bailian
from kvsim.traces.readers.mooncake import read_mooncake
from kvsim.traces.readers.saved import read_saved
from kvsim.traces.readers.source import STDIN, Source
from kvsim.traces.readers.units import UNITS
from kvsim.traces.readers.weka import read_weka
from kvsim.traces.trace import Trace, TraceError

READERS: dict[str, Callable[..., Trace]] = {
    "mooncake": read_mooncake,
    "weka": read_weka,
    "bailian": read_bailian,
    "kvsim": read_saved,
}
CHOICES = {
    "rows": ("cumulative", "incremental"),
    "nested": ("relative", "absolute"),
    "time_unit": tuple(UNITS),
    "partial_blocks": ("continue", "error"),
}


def read(
    path: str | Path,
    format: str | None = None,
    *,
    progress: Callable[[int, int], None] | None = None,
    **options: Any,
) -> Trace:
    """Read a trace of any known format.

    Parameters
    ----------
    path : str or Path
        File, folder or pipe; ``-`` is standard input. Plain or compressed by gzip, xz, bzip2 or
        zstd, whatever its name.
    format : str, optional
        A key of `READERS`; recognised from the content unless given.
    progress : callable, optional
        Told (bytes read, bytes in all); of a pipe, 0 in all.
    **options
        Those that the format's reader takes; None means not given.

        block_size : int
            Tokens a block; what the file states must agree.
        time_unit : {"s", "ms", "us", "ns"}
            The unit of the file's times; by default that of the format, with a note where the
            times speak against it.
        partial_blocks : {"continue", "error"}
            What becomes of a block whose parent and id are known with another number of tokens, as
            where a partial last block has grown: by default it is a block of its own, with a note.
        rows : {"cumulative", "incremental"}
            Whether a row of a session holds its whole prompt or only what is new; required where
            rows carry a `session_id`.
        nested : {"relative", "absolute"}
            How sub-agents' times count; found by rule unless given.
        keep_repeats : bool
            Keep sessions that repeat another one except for its id.

    Raises
    ------
    TraceError
        If the path or format is unknown, an option is none or does not fit
        the format, or the content is bad.
    """
    if str(path) != STDIN and not Path(path).exists():
        raise TraceError(f"{path}: no such file or folder")
    if format is not None and format not in READERS:
        raise TraceError(f"format {format!r} is unknown; known: {', '.join(READERS)}")
    given = {
        key: value for key, value in options.items() if value is not None and value is not False
    }
    _check(given)
    with Source(path, progress) as source:
        name = format or recognise(source)
        reader = READERS[name]
        for option in given.keys() - inspect.signature(reader).parameters.keys():
            raise TraceError(f"{source.label}: option {option} does not apply to the format {name}")
        return reader(source, **given)


def recognise(source: Source) -> str:
    """Return the key of `READERS` that the content of a source calls for."""
    if source.is_folder or source.is_tar:
        return "weka"
    if source.head.startswith(b"PK"):
        return "kvsim"
    first = source.first_line()
    return _format_of(source.label, *first) if first else "mooncake"  # a trace without requests


def _check(options: dict[str, Any]) -> None:
    size = options.get("block_size", 1)
    if not isinstance(size, int) or size < 1:
        raise TraceError(f"block_size is {size!r}; it must be at least 1 token")
    for option, value in options.items():
        if value not in CHOICES.get(option, (value,)):
            raise TraceError(f"{option} is {value!r}; it must be {' or '.join(CHOICES[option])}")


def _format_of(label: str, number: int, line: bytes) -> str:
    try:
        keys = msgspec.json.decode(line, type=dict[str, msgspec.Raw]).keys()
    except (msgspec.DecodeError, UnicodeDecodeError):
        # Either one document over several lines, or damage that the reader will name.
        return "weka" if line.strip() == b"{" or b'"requests"' in line else "mooncake"
    if "requests" in keys:
        return "weka"
    if keys & {"chat_id", "parent_chat_id"}:
        return "bailian"
    if keys & {"hash_ids", "timestamp", "created_time", "input_length", "input_tokens"}:
        return "mooncake"
    raise TraceError(
        f"{label}:{number}: an object with the fields {', '.join(sorted(keys)) or '(none)'} is of "
        f"no known format; known: {', '.join(READERS)}"
    )
