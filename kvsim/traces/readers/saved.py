"""Traces saved by kvsim."""

import tempfile

from kvsim.traces.readers.source import Source
from kvsim.traces.trace import Trace, TraceError, load


def read_saved(source: Source) -> Trace:
    """Open a trace written by `Trace.save`.

    A saved trace is a zip file, whose index stands at its end: one that comes from a pipe or is
    compressed once more goes through a temporary file.
    """
    if source.is_file_as_it_is:
        return load(source.path)
    with tempfile.NamedTemporaryFile(suffix=".npz") as spool:
        for chunk in source.chunks():
            spool.write(chunk)
        spool.flush()
        try:
            return load(spool.name)
        except TraceError as error:
            raise TraceError(str(error).replace(spool.name, source.label)) from error
