"""Hypothesis profiles: what every run does, and what `make fuzz` does."""

from hypothesis import settings

from tests.browser import browser, site, visit  # noqa: F401

settings.register_profile("every-run", max_examples=300, deadline=None)
settings.register_profile("fuzz", max_examples=5_000, deadline=None)
settings.load_profile("every-run")
