"""What the shell is offered when a name is begun."""


def traces(incomplete: str) -> list[str]:
    """Return the known traces that begin so."""
    from kvsim.traces.registry import known_names

    return [name for name in known_names() if name.startswith(incomplete)]


def published(incomplete: str) -> list[str]:
    """Return the published traces and sets that begin so."""
    from kvsim.traces.registry import registry

    entries = registry().values()
    names = dict.fromkeys([*(entry.set for entry in entries), *(entry.name for entry in entries)])
    return [name for name in names if name.startswith(incomplete)]


def policies(incomplete: str) -> list[str]:
    """Return the lists that go on with a policy or bound that begins as the last item does."""
    from kvsim.cache.policies import names

    before, comma, begun = incomplete.rpartition(",")
    return [f"{before}{comma}{name}" for name in ("all", *names()) if name.startswith(begun)]
