"""What the commands' options stand for: traces, arrivals, policies, lists."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kvsim.cli.output import usage_error
from kvsim.report.terminal import Meter

if TYPE_CHECKING:
    from kvsim.cache.policy import Policy
    from kvsim.traces.trace import Trace

STANDARD_INPUT = "-"


def open_trace(meter: Meter, name: str, **options: Any) -> "Trace":
    """Open a trace by name or path, with progress; options as `kvsim.traces.readers.read`'s."""
    from kvsim.traces import opening

    what = "standard input" if name == STANDARD_INPUT else name
    return opening.open_trace(name, window=None, progress=meter.task(f"reading {what}"), **options)


def arrange(trace: "Trace", window: str | None, sessions: int | None, seed: int) -> "Trace":
    """Give the sessions their starts; a trace with recorded arrivals keeps them."""
    from kvsim.traces import arrivals
    from kvsim.traces.trace import SESSION, TraceError

    if window is not None and trace.clock != SESSION:
        raise TraceError(f"{trace.name}: its arrivals are recorded, so --window does not apply")
    return arrivals.arrange(trace, window or arrivals.DEFAULT_WINDOW, seed, sessions)


def chosen_policies(items: Sequence[str]) -> "dict[str, str | Policy]":
    """Return by name the policies that names and files stand for; all leaves the bounds out."""
    from kvsim.cache import policies
    from kvsim.cache.bounds import BOUNDS

    every = [name for name in policies.names() if name not in BOUNDS]
    return policies.chosen(name for item in items for name in (every if item == "all" else [item]))


def items(option: str, values: Sequence[str]) -> list[str]:
    """Return the items of a list given by commas, by repetition, or by both."""
    items = [item.strip() for value in values for item in value.split(",")]
    if not all(items):
        raise usage_error(f"{option} {','.join(values)!r}: an empty item in the list")
    return items
