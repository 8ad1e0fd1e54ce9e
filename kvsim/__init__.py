"""kvsim: an exact, fast simulator of KV prefix caches for LLM serving."""

import hashlib
import os
import tempfile
from pathlib import Path

__version__ = "0.1.0"

COMPILED = ("traces", "cache", "analysis")  # rooms whose functions Numba compiles


def source_version() -> str:
    """Return a short hash of the sources that define compiled functions.

    Numba notices an edit of a function's own file but not of a file that it
    calls into or takes a constant from, so compiled code is cached under this key.
    """
    digest = hashlib.sha256()
    for room in COMPILED:
        for path in sorted((Path(__file__).parent / room).rglob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


if "NUMBA_CACHE_DIR" not in os.environ:
    cache_home = Path(os.environ.get("XDG_CACHE_HOME", tempfile.gettempdir()))
    os.environ["NUMBA_CACHE_DIR"] = str(cache_home / f"kvsim-{os.getuid()}-{source_version()}")
