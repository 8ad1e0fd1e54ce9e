"""Committed results: tidy CSV a table, provenance beside it, one readable text an experiment."""

import inspect
import json
import platform
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

from kvsim.report.results import RESULTS, Tables, load_tables
from kvsim.traces.trace import Trace, write_atomically

VERSIONS = ("numpy", "numba", "pandas", "scipy")


@dataclass(frozen=True)
class Experiment:
    """What `python -m kvsim.experiments` runs, stores and verifies.

    Parameters
    ----------
    number : int
        Orders the text files of the results.
    name : str
        Of the command and the files.
    title : str
        First line of the text.
    tables : function ``(trace, **parameters) -> dict of DataFrame``
        The computation; sessions are not yet interleaved in `trace`.
    text : function ``(trace name, tables) -> str``
        What a reader sees of one trace without running anything.
    applies : function ``(trace) -> bool``
        Whether the experiment makes sense for a trace.
    parameters : dict
        Values for `tables` that differ from its defaults, by trace name; None
        stands for all other traces.
    part : dict
        By trace name, parameters that recompute only some of the rows, for the
        everyday check of results that take long; None recomputes none.
    resumable : bool
        Whether `tables` takes `resume`, a folder that keeps what is done.
    """

    number: int
    name: str
    title: str
    tables: Callable[..., Tables]
    text: Callable[[str, Tables], str]
    applies: Callable[[Trace], bool] = lambda trace: True
    parameters: Mapping[str | None, Mapping[str, Any]] = field(default_factory=dict)
    part: Mapping[str, Mapping[str, Any] | None] = field(default_factory=dict)
    resumable: bool = False

    def parameters_for(self, trace: str) -> dict[str, Any]:
        """Return the parameters of a trace."""
        return dict(self.parameters.get(trace, self.parameters.get(None, {})))

    def run(self, trace: Trace, results: Path, **other: Any) -> list[Path]:
        """Compute the tables of a trace, with `other` parameters, and store them as CSV files."""
        parameters = self.parameters_for(trace.name) | other
        tables = self.tables(trace, **parameters)
        folder = results / trace.name
        paths = [folder / f"{self.name}-{name}.csv" for name in tables]
        for path, table in zip(paths, tables.values(), strict=True):
            text = table.to_csv(index=False, lineterminator="\n")
            write_atomically(path, lambda file, text=text: file.write(text.encode()))  # type: ignore[misc]
        provenance = {
            "experiment": self.name,
            "trace": trace.name,
            "source_sha256": trace.source_hash,
            "parameters": {key: parameters[key] for key in parameters if key != "resume"},
            "notes": trace.notes,
            "versions": {"python": platform.python_version()}
            | {name: version(name) for name in VERSIONS},
        }
        text = json.dumps(provenance, indent=1, default=str) + "\n"
        write_atomically(folder / f"{self.name}.json", lambda file: file.write(text.encode()))
        return paths

    def stored(self, results: Path = RESULTS) -> dict[str, Tables]:
        """Return the stored tables of every trace that has some."""
        return {
            path.parent.name: load_tables(path.parent.name, self.name, results)
            for path in sorted(results.glob(f"*/{self.name}.json"))
        }

    def write_text_to(self, results: Path, folder: Path) -> Path:
        """Write the readable text of all traces stored in `results` into `folder`."""
        path = folder / f"{self.number:02d}_{self.name}.txt"
        sections = [self.title, "=" * len(self.title), ""]
        for trace, tables in self.stored(results).items():
            sections += [f"{trace}", "-" * len(trace), self.text(trace, tables).rstrip(), ""]
        text = "\n".join(line.rstrip() for line in "\n".join(sections).splitlines()) + "\n"
        write_atomically(path, lambda file: file.write(text.encode()))
        return path


def setup_words(*experiments: Experiment) -> dict[str, str]:
    """Return window and seeds of the session starts in results, for captions, by default."""
    told = {}
    for experiment in experiments:
        parameters = inspect.signature(experiment.tables).parameters
        defaults = {name: parameter.default for name, parameter in parameters.items()}
        told["committed_window"] = f"{defaults['window'] / 3600:g} hours"
        if "seed" in defaults:
            told["committed_seed"] = f"{defaults['seed']}"
        if "seeds" in defaults:
            first, *_, last = defaults["seeds"]
            told["committed_seeds"] = f"{first} to {last}"
    return told


def difference(fresh: Path, committed: Path, *, part: bool = False) -> str:
    """Return what tells two files apart, "" for nothing.

    Parameters
    ----------
    fresh, committed : Path
        The recomputed file and the one of the repository.
    part : bool
        The recomputed rows need only be among the committed ones.
    """
    if not committed.exists():
        return "not committed"
    new, old = fresh.read_text(), committed.read_text()
    if not part:
        return "" if new == old else _first_difference(old, new)
    known = set(old.splitlines())
    strange = [line for line in new.splitlines() if line not in known]
    return f"{len(strange)} rows are not committed, first {strange[0]!r}" if strange else ""


def _first_difference(old: str, new: str) -> str:
    pairs = zip(old.splitlines(), new.splitlines(), strict=False)
    for number, (before, after) in enumerate(pairs, 1):
        if before != after:
            return f"line {number} is {before!r} in the committed file and {after!r} now"
    return "one file is longer than the other"
