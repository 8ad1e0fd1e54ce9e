"""The registry: published traces by name, and where they and their descriptions lie."""

import difflib
import os
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from platformdirs import user_data_path

from kvsim.traces.download import FetchError, RemoteFile

PACKAGE = Path(__file__).resolve().parents[1]
CHECKOUT = PACKAGE.parent
SAMPLE = "sample"


@dataclass(frozen=True)
class Entry:
    """A trace of the registry; ``data/registry.toml`` says what its fields mean."""

    name: str
    set: str
    path: str
    licence: str
    url: str = ""
    hub: str = ""
    revision: str = ""
    size: int | None = None
    about: int = 0
    sha256: str = ""
    git_blob: str = ""
    blobs: str = ""
    without: tuple[str, ...] = ()
    shared_with: str = ""
    archive: RemoteFile | None = None
    optional: bool = False

    @cached_property
    def files(self) -> tuple[RemoteFile, ...]:
        """The files as published: one, or the many of a folder."""
        if not self.blobs:
            return (RemoteFile(self.path, self.url, self.size, self.sha256, self.git_blob),)
        rows = (line.split() for line in committed(self.blobs).read_text().splitlines())
        named = [(blob, Path(path).name) for blob, path in rows]
        return tuple(
            RemoteFile(f"{self.path}/{name}", f"{self.url}/{name}", git_blob=blob)
            for blob, name in named
            if name not in self.without
        )

    @property
    def source(self) -> str:
        """The repository that publishes the trace, for people."""
        if self.hub:
            return f"huggingface.co/datasets/{self.hub}"
        return f"github.com/{'/'.join(self.url.split('/')[3:5])}"


def data_folder() -> Path:
    """Return ``$KVSIM_DATA``, else the ``data`` of a checkout, else the user's data folder."""
    if own := os.environ.get("KVSIM_DATA"):
        return Path(own)
    return _checked_out() or user_data_path("kvsim", appauthor=False)


def raw_folder() -> Path:
    """Return the folder of fetched traces."""
    return data_folder() / "raw"


def committed(name: str) -> Path:
    """Return a data file of the project; a data folder elsewhere may bring its own."""
    own = data_folder() / name
    return own if own.exists() else (_checked_out() or PACKAGE / "data") / name


def registry() -> dict[str, Entry]:
    """Return the published traces by name."""
    with committed("registry.toml").open("rb") as file:
        rows = tomllib.load(file)["trace"]
    return {row["name"]: _entry(row) for row in rows}


def known_names() -> list[str]:
    """Return the names that `open_trace` takes."""
    return [SAMPLE, *registry()]


def select(names: Iterable[str] = ()) -> list[Entry]:
    """Return the registry's entries of the given trace or set names.

    A set stands for all its traces but the optional ones, and no name at all
    for every set. A name that is both means the set.

    Raises
    ------
    FetchError
        If a name is neither a trace nor a set.
    """
    entries = registry()
    sets = {entry.set for entry in entries.values()}
    wanted = set(names) or sets
    for name in sorted(wanted - sets - entries.keys()):
        raise FetchError(unknown(name, "neither a trace nor a set", sorted({*entries, *sets})))
    return [
        entry
        for entry in entries.values()
        if (entry.set in wanted and not entry.optional) or entry.name in wanted - sets
    ]


def _entry(row: dict[str, Any]) -> Entry:
    archive = RemoteFile(**row.pop("archive")) if "archive" in row else None
    return Entry(**row | {"without": tuple(row.get("without", ()))}, archive=archive)


def _checked_out() -> Path | None:
    """Return the ``data`` folder beside the package, which a checkout has and a wheel has not."""
    folder = CHECKOUT / "data"
    return folder if (folder / "registry.toml").exists() else None


def unknown(name: str, what: str, known: list[str]) -> str:
    """Return the message on a name that is not known, with the nearest one that is."""
    close = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    return f"{name}: {what}; {hint}known: {', '.join(known)}"
