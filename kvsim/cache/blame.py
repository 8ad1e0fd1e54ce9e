"""What went wrong in a policy's own code, in one line that names file and line."""

import dis
import inspect
import os
import re
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields
from pathlib import Path
from types import CodeType
from typing import Any

import numpy as np

from kvsim.cache.policy import NODE, REQUEST, RUN, Cache, Policy, State

LONGEST = 300  # characters of a compiler's message
RECORDS = "; ".join(
    f"a {what} has: {', '.join(record.names or ())}"
    for what, record in (("node", NODE), ("run", RUN), ("request", REQUEST))
)
OWNERS = {
    "Cache": f"the cache has: {', '.join(Cache._fields)}",
    "State": f"the state has: {', '.join(State._fields)}",
}
ATTRIBUTE = (  # how Numba words a field that does not exist; the last is a record's
    r"Unknown attribute '(?P<name>\w+)' of type (?P<owner>\w+)",
    r"Cannot resolve setattr: \((?P<owner>\w+)\(.*\)\.(?P<name>\w+) = ",
    r"^'(?P<name>\w+)'$",
)
NAME = r"(?:no attribute|name) '(\w+)'"
NOISE = re.compile(r"Failed in nopython mode pipeline \(step: [^)]*\)")
REST = re.compile(r"There are \d+ candidate|File \"|During: ")


def shown(path: str | Path) -> str:
    """Return a path as a reader knows it: relative where it lies in the working folder."""
    try:
        return str(Path(path).relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def plain(function: Any) -> Any:
    """Return the Python function that a function of Numba's is made from, or itself."""
    return getattr(function, "py_func", function)


def place(function: Callable[..., Any], line: int | None = None) -> str:
    """Return ``file, line`` of a function, or of a line of its file."""
    code = getattr(plain(function), "__code__", None)
    if code is None:
        return repr(function)
    return f"{shown(code.co_filename)}, line {line or code.co_firstlineno}"


def loading(error: BaseException, path: str) -> str:
    """Return what ended the loading of the policy file at `path`."""
    if isinstance(error, SyntaxError):
        return f"{shown(path)}, line {error.lineno}: SyntaxError: {error.msg}"
    what = f"{type(error).__name__}: {_joined(error)}"
    if isinstance(error, TypeError) and "Policy.__init__()" in what:
        what += f"; Policy takes: {', '.join(field.name for field in fields(Policy))}"
    line = _line_in(error, path)
    return f"{shown(path)}{f', line {line}' if line else ''}: {what}"


def compiling(function: Callable[..., Any], error: Exception) -> str:
    """Return what Numba holds against a function, with the fields there are."""
    text = str(error)
    for pattern in ATTRIBUTE:
        found = re.search(pattern, text)
        if found:
            name, owner = found["name"], found.groupdict().get("owner")
            if owner in OWNERS or isinstance(error, KeyError):
                known = OWNERS.get(owner or "", RECORDS)
                return f"{_naming(function, name)}: there is no field {name!r}; {known}"
    called = re.search(NAME, text)
    where = getattr(error, "loc", None)
    if called:
        at = _naming(function, called[1])
    elif where:
        at = f"{shown(os.path.abspath(where.filename))}, line {where.line}"
    else:
        at = place(function)
    said = " ".join(REST.split(NOISE.sub("", text))[0].split())
    return f"{at}: {type(error).__name__}: {said[:LONGEST]}"


def arguments(
    function: Callable[..., Any], wanted: Sequence[str], named: Sequence[str] = ()
) -> str | None:
    """Return what is wrong with the arguments that a function takes, None if nothing is."""
    signature = inspect.signature(plain(function))
    try:
        signature.bind(*wanted, **dict.fromkeys(named))
    except TypeError:
        must = ", ".join((*wanted, *named))
        return f"{place(function)}: it takes {signature}; it must take ({must})"
    return None


def calling(function: Callable[..., Any], error: BaseException) -> str:
    """Return what a function of a policy's raised when Python called it."""
    code = getattr(plain(function), "__code__", None)
    line = _line_in(error, code.co_filename) if code else None
    return f"{place(function, line)}: {type(error).__name__}: {_joined(error)}"


def running(
    function: Callable[..., Any],
    state: State,
    cache: Cache,
    given: Sequence[int],
    error: BaseException,
) -> str:
    """Return what went wrong in a compiled hook, found by calling its Python source once more.

    Compiled code does not say in which line it failed. State and cache are as the failed call
    left them, and are lost with the run anyway.
    """
    records = {
        name: getattr(cache, name).view(np.recarray) for name in ("nodes", "runs", "requests")
    }
    try:
        with np.errstate(all="raise", under="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            value = plain(function)(state, cache._replace(**records), *given)
    except Exception as again:
        what = calling(function, again)
        return f"{what}; {_columns(state)}" if isinstance(again, IndexError) else what
    if isinstance(error, ValueError) and not error.args:  # the watch's own
        return f"{place(function)}: it returned {value}"
    return f"{place(function)}: {type(error).__name__}: {_joined(error)}"


def _columns(state: State) -> str:
    return (
        f"the state has {len(state.scalars)} scalars, {len(state.table)} of a table and "
        f"{state.nodes.shape[1]} columns a node, {state.sessions.shape[1]} a session, "
        f"{state.runs.shape[1]} a run"
    )


def _joined(error: BaseException) -> str:
    return " ".join(str(error).split())


def _line_in(error: BaseException, path: str) -> int | None:
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == path]
    return lines[-1] if lines else None


def _naming(function: Callable[..., Any], name: str) -> str:
    """Return the place where a function, or one that it calls, has a name in it."""
    for code in _codes(plain(function), set()):
        line = None
        for instruction in dis.get_instructions(code):
            line = instruction.starts_line or line
            if instruction.argval == name:
                return f"{shown(code.co_filename)}, line {line}"
    return place(function)


def _codes(function: Callable[..., Any], seen: set[CodeType]) -> Iterator[CodeType]:
    code = function.__code__
    if code not in seen:
        seen.add(code)
        yield code
        for name in code.co_names:
            called = plain(function.__globals__.get(name))  # type: ignore[attr-defined]
            if inspect.isfunction(called):
                yield from _codes(called, seen)
