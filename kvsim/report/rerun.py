"""What a reader needs to run a page again: commands, a file of its parameters, the time."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from kvsim.report.results import FOLDER
from kvsim.traces.trace import TraceError

TIMES = Path(__file__).resolve().parents[2] / "book" / "times.yml"
CLASSES = (60, 300, 900)  # seconds; a page says below which of them its run stayed
CLONE = "# in a clone of the repository"  # whoever renders the page puts the address here

# What each parameter of the chapters means, with its unit.
PARAMETERS = {
    "trace_name": "name of a known trace, or a path from where you run the command",
    "window": "seconds in which sessions start, where the trace has sessions; 0: all at once",
    "seed": "of the session starts, and of samples of sessions",
    "seeds": "of the session starts, and of samples of sessions; each is a run",
    "sessions": "sessions drawn from the trace, where it has sessions",
    "sample": "sessions in each of the smaller samples",
    "capacities": "cache sizes in blocks",
    "pair_capacities": "cache sizes in blocks at which slips run in pairs too",
    "varied_at": "cache sizes in blocks at which the policies' parameters are varied",
    "points": "capacities on a log scale, beside those named",
    "policies": "names of policies",
    "ttls": "times to live in seconds",
    "ttl_seconds": "time to live in seconds",
    "draws": "bootstrap samples",
    "bytes_per_token": "bytes of keys and values that the model keeps a token",
}
SHARES = "cache sizes: blocks (20000), shares of the distinct blocks (5%), or inf"


def parameter_file(chapter: str, defaults: Mapping[str, Any]) -> str:
    """Return a ready-made parameter file: every parameter with its default, meaning and unit.

    Parameters
    ----------
    chapter : str
        Name of the page.
    defaults : dict
        Parameters and the values with which the page was made.

    Raises
    ------
    TraceError
        If `PARAMETERS` does not say what a parameter is.
    """
    lines = [f"# Parameters of the page {chapter}, as it was made. Change any, leave out the rest."]
    lines += [f"# {command(chapter)}"]
    for name, value in defaults.items():
        lines += ["", f"# {meaning(chapter, name, value)}"]
        flow = None if isinstance(value, list) else False  # None: of the list, not of the line
        lines += [yaml.safe_dump({name: value}, default_flow_style=flow, width=1000).rstrip()]
    return "\n".join(lines) + "\n"


def meaning(chapter: str, name: str, value: Any) -> str:
    """Return what a parameter is, with its unit."""
    if name not in PARAMETERS:
        raise TraceError(f"{chapter}: parameter {name!r} has no meaning in {__name__}.PARAMETERS")
    takes_shares = isinstance(value, Sequence) and any(isinstance(one, str) for one in value)
    return SHARES if name == "capacities" and takes_shares else PARAMETERS[name]


def command(chapter: str) -> str:
    """Return the command that executes a chapter with the parameters of its file."""
    folder = os.environ.get(FOLDER)
    own = f"{FOLDER}='{folder}' " if folder else ""
    build = f".venv/bin/python book/build.py {chapter}"
    return f"{own}{build} --params {chapter}.yml --output my.ipynb"


def class_of(seconds: float) -> str:
    """Return the class of a running time, as pages state it."""
    limit = next((limit for limit in CLASSES if seconds <= limit), None)
    if limit is None:
        return f"more than {CLASSES[-1] // 60} minutes"
    return "less than a minute" if limit == 60 else f"less than {limit // 60} minutes"


def instructions(chapter: str) -> str:
    """Return, in Markdown, how to run a page with other parameters, and how long it takes."""
    times = yaml.safe_load(TIMES.read_text()) if TIMES.exists() else {}
    taken = times.get(chapter)
    time = f" It takes {taken} on two cores, once everything is compiled." if taken else ""
    file = f'<a href="params/{chapter}.yml" download="{chapter}.yml">{chapter}.yml</a>'
    return (
        f"```sh\n{CLONE}\nmake setup\n{command(chapter)}\n```\n\n"
        f"The parameters are in {file}, with their units and the values that made this page: save "
        "it beside the Makefile and change what you like, `trace_name` to a path of your own for "
        f"one.{time} The notebook of this page needs the same clone and set-up: open it in the "
        "folder `book`, with the Python of `.venv`.\n"
    )
