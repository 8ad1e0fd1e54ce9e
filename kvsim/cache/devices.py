"""Accelerators and the links below them: plain data in ``devices.toml``, and a user's own."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from kvsim.traces.registry import unknown
from kvsim.traces.trace import TraceError


@dataclass(frozen=True)
class Accelerator:
    """Memory (bytes), bandwidth (bytes/s), dense bf16 FLOP/s, the share that prefill reaches."""

    name: str
    memory: float
    bandwidth: float
    peak_flops: float
    utilisation: float
    source: str

    def __post_init__(self) -> None:
        _positive(self, "memory", "bandwidth", "peak_flops", "utilisation")
        if self.utilisation > 1:
            raise TraceError(
                f"device {self.name}: utilisation is {self.utilisation}; it must be at most 1"
            )

    @property
    def prefill_flops(self) -> float:
        """FLOP/s of a prefill."""
        return self.utilisation * self.peak_flops


@dataclass(frozen=True)
class Link:
    """The way to a tier: bytes/s in each direction, seconds a transfer, endurance if it wears."""

    name: str
    read: float
    write: float
    latency: float
    source: str
    drive_writes_per_day: float | None = None

    def __post_init__(self) -> None:
        _positive(self, "read", "write")
        if not 0 <= self.latency < float("inf"):
            raise TraceError(
                f"device {self.name}: latency is {self.latency}; it must be at least 0"
            )

    def load_seconds(self, size: float) -> float:
        """Return how long it takes to load so many bytes; nothing for none."""
        return self.latency + size / self.read if size else 0.0


@dataclass(frozen=True)
class Devices:
    """What is known, by name."""

    accelerators: Mapping[str, Accelerator]
    links: Mapping[str, Link]

    def accelerator(self, name: str) -> Accelerator:
        """Return an accelerator by name; TraceError if there is none."""
        return _find(self.accelerators, name, "accelerator")

    def link(self, name: str) -> Link:
        """Return a link by name; TraceError if there is none."""
        return _find(self.links, name, "link")


def load(path: str | Path | None = None) -> Devices:
    """Return the devices of ``devices.toml``, with those of a user's file added.

    Parameters
    ----------
    path : str or Path, optional
        A TOML file of the same form: it adds entries, and replaces fields of known ones.

    Raises
    ------
    TraceError
        If the file is no TOML, or an entry lacks a field, has an unknown one, or no number in it.
    """
    tables = _tables(Path(__file__).with_name("devices.toml"))
    if path is not None:
        for kind, entries in _tables(Path(path)).items():
            for name, row in entries.items():
                tables[kind][name] = tables[kind].get(name, {}) | row
    where = "devices.toml" if path is None else str(path)
    return Devices(
        accelerators=_entries(Accelerator, tables["accelerator"], where),
        links=_entries(Link, tables["link"], where),
    )


def _entries(kind: type, rows: Mapping[str, Any], where: str) -> dict[str, Any]:
    return {name: _entry(kind, name, row, where) for name, row in rows.items()}


def _tables(path: Path) -> dict[str, dict[str, Any]]:
    try:
        with path.open("rb") as file:
            tables = tomllib.load(file)
    except tomllib.TOMLDecodeError as error:
        raise TraceError(f"{path}: not a TOML file ({error})") from error
    kinds: dict[str, dict[str, Any]] = {"accelerator": {}, "link": {}}
    for kind, entries in tables.items():
        if kind not in kinds:
            raise TraceError(f"{path}: {unknown(kind, 'not a table of devices', list(kinds))}")
        rows = entries.values() if isinstance(entries, dict) else [None]
        if not all(isinstance(row, dict) for row in rows):
            raise TraceError(f"{path}: {kind}: give tables, as [{kind}.name]")
    return kinds | tables


def _entry(kind: type, name: str, row: Mapping[str, Any], where: str) -> Any:
    known = {field.name: field for field in fields(kind) if field.name != "name"}
    for key, value in row.items():
        if key not in known:
            what = unknown(key, "not a field of it", list(known))
            raise TraceError(f"{where}: {kind.__name__.lower()} {name}: {what}")
        right = str if key == "source" else (int, float)
        if isinstance(value, bool) or not isinstance(value, right):
            wanted = "text" if key == "source" else "a number"
            raise TraceError(f"{where}: {name}: {key} is {value!r}; it must be {wanted}")
    row = {"source": "given by the user", **row}
    optional = {"drive_writes_per_day"}
    for key in known:
        if key not in row and key not in optional:
            raise TraceError(f"{where}: {kind.__name__.lower()} {name}: {key} is missing")
    return kind(name=name, **row)


def _positive(device: Accelerator | Link, *names: str) -> None:
    for name in names:
        value = getattr(device, name)
        if not 0 < value < float("inf"):
            raise TraceError(f"device {device.name}: {name} is {value}; it must be positive")


def _find(known: Mapping[str, Any], name: str, what: str) -> Any:
    if name not in known:
        raise TraceError(f"{what} {unknown(name, 'not known', list(known))}")
    return known[name]
