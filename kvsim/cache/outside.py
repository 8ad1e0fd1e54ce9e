"""Policies from outside the package: files, and entry points of installed packages."""

import copyreg
import hashlib
import re
import sys
import threading
from functools import cache
from importlib.machinery import SourceFileLoader
from importlib.metadata import EntryPoint, entry_points
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

from kvsim.cache import blame
from kvsim.cache.policy import Policy
from kvsim.traces.trace import TraceError

GROUP = "kvsim.policies"

_loading = threading.RLock()
_files: dict[Policy, tuple[str, bytes]] = {}


def of_file(path: Path) -> Policy:
    """Return the POLICY that a file defines; the same one until the file changes.

    Raises
    ------
    TraceError
        If there is no such file, it fails, or it defines no `Policy` of that name.
    """
    if not path.is_file():
        raise TraceError(f"policy {path}: no such file")
    return of_source(str(path.resolve()), path.read_bytes())


def of_source(path: str, source: bytes) -> Policy:
    """Return the POLICY of a file that has been read: so a policy reaches another process."""
    digest = hashlib.sha256(path.encode() + b"\0" + source).hexdigest()[:16]
    # No other module has the name: Numba imports a function's module by it.
    name = f"kvsim_policy_{re.sub(r'[^a-zA-Z0-9]', '_', Path(path).stem)}_{digest}"
    with _loading:
        module = sys.modules.get(name) or _load(name, path, source)
        policy = getattr(module, "POLICY", None)
        if not isinstance(policy, Policy):
            raise TraceError(f"policy {blame.shown(path)}: must define POLICY, {_a_policy()}")
        _files.setdefault(policy, (path, source))
    return policy


class _Loader(SourceFileLoader):
    """Run the text that was read, which names the module, and leave no compiled copy beside it."""

    def __init__(self, name: str, path: str, source: bytes) -> None:
        super().__init__(name, path)
        self.source = source

    def get_code(self, fullname: str) -> Any:
        return self.source_to_code(self.source, self.path)


def _load(name: str, path: str, source: bytes) -> ModuleType:
    spec = spec_from_file_location(name, path, loader=_Loader(name, path, source))
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException as error:
        del sys.modules[name]
        if not isinstance(error, Exception):
            raise
        raise TraceError(f"policy {blame.loading(error, path)}") from error
    return module


def _reduce(policy: Policy) -> Any:
    if policy in _files:
        return of_source, _files[policy]
    return policy.__reduce_ex__(2)


copyreg.pickle(Policy, _reduce)


@cache
def registered() -> dict[str, EntryPoint]:
    """Return the entry points of installed packages by name; none is loaded.

    Raises
    ------
    TraceError
        If two packages register one name.
    """
    found: dict[str, EntryPoint] = {}
    for entry in entry_points(group=GROUP):
        other = found.setdefault(entry.name.lower(), entry)
        if package_of(other) != package_of(entry) or other.value != entry.value:
            raise TraceError(
                f"policy {entry.name}: {package_of(other)} and {package_of(entry)} both register "
                f"this name as an entry point {GROUP}; uninstall one"
            )
    return {entry.name: entry for entry in found.values()}


@cache
def of_entry(entry: EntryPoint) -> Policy:
    """Return the policy that a package registers.

    Raises
    ------
    TraceError
        If it does not load, is no `Policy`, or has another name.
    """
    source = f"policy {entry.name} of {package_of(entry)} ({entry.value})"
    try:
        policy = entry.load()
    except Exception as error:  # whatever another package may raise
        what = " ".join(str(error).split())
        raise TraceError(f"{source}: {type(error).__name__}: {what}") from error
    if not isinstance(policy, Policy):
        raise TraceError(f"{source}: is {type(policy).__name__}; it must be {_a_policy()}")
    if policy.name != entry.name:
        raise TraceError(f"{source}: the policy's own name is {policy.name!r}; they must agree")
    return policy


def package_of(entry: EntryPoint) -> str:
    """Return the name of the package that has an entry point."""
    return f"package {entry.dist.name}" if entry.dist else "an unknown package"


def origin(policy: Policy) -> str:
    """Return where a policy comes from, for messages."""
    if policy in _files:
        return blame.shown(_files[policy][0])
    return "a Policy object"


def _a_policy() -> str:
    return f"a {Policy.__module__}.Policy"
