"""What the commands' options stand for: traces, arrivals, policies, lists."""

from typing import TYPE_CHECKING, Any

from kvsim.cli.output import usage_error
from kvsim.report.terminal import Meter

if TYPE_CHECKING:
    from kvsim.cache.policy import Policy
    from kvsim.traces.trace import Trace


def open_trace(meter: Meter, name: str, *options: Any) -> "Trace":
    """Open a trace by name or path, with progress; options in the order of the commands."""
    from kvsim.traces import opening

    names = ("format", "rows", "nested", "block_size", "keep_repeats")
    given = dict(zip(names, options, strict=True))
    return opening.open_trace(name, window=None, progress=meter.task(f"reading {name}"), **given)


def arrange(trace: "Trace", window: str | None, sessions: int | None, seed: int) -> "Trace":
    """Give the sessions their starts; a trace with recorded arrivals keeps them."""
    from kvsim.traces import arrivals
    from kvsim.traces.trace import SESSION, TraceError

    if window is not None and trace.clock != SESSION:
        raise TraceError(f"{trace.name}: its arrivals are recorded, so --window does not apply")
    return arrivals.arrange(trace, window or arrivals.DEFAULT_WINDOW, seed, sessions)


def chosen_policies(items: list[str]) -> "list[str | Policy]":
    """Return the policies that names and files stand for; a bound stays a name."""
    from kvsim.cache.bounds import BOUNDS
    from kvsim.cache.policies import POLICIES, get

    named = [name for item in items for name in (POLICIES if item == "all" else [item])]
    return [name if name in BOUNDS else get(name) for name in named]


def items(option: str, values: list[str]) -> list[str]:
    """Return the items of a list given by commas, by repetition, or by both."""
    items = [item.strip() for value in values for item in value.split(",")]
    if not all(items):
        raise usage_error(f"{option} {','.join(values)!r}: an empty item in the list")
    return items
