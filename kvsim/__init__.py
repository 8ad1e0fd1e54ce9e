"""kvsim: an exact, fast simulator of KV prefix caches for LLM serving.

    import kvsim

    trace = kvsim.open_trace("sample")
    kvsim.simulate(trace, "lru", "10k").hit_ratio

The names of `__all__` are loaded when they are first used, since what they need compiles.
"""

import hashlib
import importlib
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kvsim.cache.bounds import opt
    from kvsim.cache.curves import curve
    from kvsim.cache.policies import POLICIES
    from kvsim.cache.policy import Policy
    from kvsim.cache.result import Result
    from kvsim.cache.sweep import run as sweep
    from kvsim.cache.sweep import simulate
    from kvsim.traces.arrivals import arrange
    from kvsim.traces.opening import open_trace
    from kvsim.traces.trace import Trace, TraceError

__version__ = "0.2.0"
__all__ = [
    "POLICIES",
    "Policy",
    "Result",
    "Trace",
    "TraceError",
    "arrange",
    "curve",
    "open_trace",
    "opt",
    "simulate",
    "sweep",
]
_PLACES = {
    "POLICIES": "kvsim.cache.policies:POLICIES",
    "Policy": "kvsim.cache.policy:Policy",
    "Result": "kvsim.cache.result:Result",
    "Trace": "kvsim.traces.trace:Trace",
    "TraceError": "kvsim.traces.trace:TraceError",
    "arrange": "kvsim.traces.arrivals:arrange",
    "curve": "kvsim.cache.curves:curve",
    "open_trace": "kvsim.traces.opening:open_trace",
    "opt": "kvsim.cache.bounds:opt",
    "simulate": "kvsim.cache.sweep:simulate",
    "sweep": "kvsim.cache.sweep:run",
}


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module 'kvsim' has no attribute {name!r}")
    module, attribute = _PLACES[name].split(":")
    return getattr(importlib.import_module(module), attribute)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


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
