"""Hypothesis profiles (what every run does, and what `make fuzz` does) and shared fixtures."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import settings

from tests.browser import browser, site, visit  # noqa: F401
from tests.trace_files import jsonl

settings.register_profile("every-run", max_examples=300, deadline=None)
settings.register_profile("fuzz", max_examples=5_000, deadline=None)
settings.load_profile("every-run")


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Return a function that writes rows (or text, or bytes) to a file."""

    def to_file(content: Sequence[dict] | str | bytes, name: str = "trace.jsonl") -> Path:
        if not isinstance(content, str | bytes):
            content = jsonl(content)
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return to_file
