"""kvsim: an exact, fast simulator of KV prefix caches for LLM serving."""

import hashlib
import os
import tempfile
from pathlib import Path

__version__ = "0.1.0"


def source_version() -> str:
    """Return a short hash of the package's own sources.

    Compiled kernels and converted traces are cached under this key, so that
    an edit anywhere in the package can never be answered from an old cache.
    """
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


if "NUMBA_CACHE_DIR" not in os.environ:
    cache_home = Path(os.environ.get("XDG_CACHE_HOME", tempfile.gettempdir()))
    os.environ["NUMBA_CACHE_DIR"] = str(cache_home / f"kvsim-{os.getuid()}-{source_version()}")
