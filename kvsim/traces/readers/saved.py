"""Traces saved by kvsim."""

import tempfile
import zipfile
import zlib
from pathlib import Path

from kvsim.traces.readers.source import Source
from kvsim.traces.trace import Trace, TraceError, load


def read_saved(source: Source) -> Trace:
    """Open a trace written by `Trace.save`.

    A saved trace is a zip file, whose index stands at its end: one that comes from a pipe or is
    compressed once more goes through a temporary file.

    Raises
    ------
    TraceError
        If it is no saved trace, is damaged, or is of another format version.
    """
    if source.is_file_as_it_is:
        return _load(source.path, source.label)
    with tempfile.NamedTemporaryFile(suffix=".npz") as spool:
        for chunk in source.chunks():
            spool.write(chunk)
        spool.flush()
        return _load(Path(spool.name), source.label)


def _load(path: Path, label: str) -> Trace:
    try:
        return load(path)
    except TraceError as error:
        raise TraceError(str(error).replace(str(path), label)) from error
    except (zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise TraceError(f"{label}: a saved trace that is cut off or damaged ({error})") from error
