"""Sphinx extension of the book: no page asks another machine for anything."""

from typing import Any

from sphinx.application import Sphinx
from sphinx.config import Config


def drop_thebe(app: Sphinx, config: Config) -> None:
    """Disconnect sphinx-thebe, which Jupyter Book always loads: its script comes from a CDN."""
    for listeners in app.events.listeners.values():
        for listener in [x for x in listeners if x.handler.__module__.startswith("sphinx_thebe")]:
            listeners.remove(listener)
    registry = app.registry
    registry.css_files = [entry for entry in registry.css_files if "thebe" not in entry[0]]


def mend_roles(app: Sphinx, page: str, template: str, context: dict[str, Any], _: Any) -> None:
    """Drop roles that docutils and sphinxcontrib-bibtex give to a list of works in error."""
    for role in ("doc-biblioentry", "list"):
        context["body"] = context.get("body", "").replace(f' role="{role}"', "")


def setup(app: Sphinx) -> dict[str, bool]:
    """Register with Sphinx."""
    app.connect("config-inited", drop_thebe, priority=900)
    app.connect("html-page-context", mend_roles)
    app.add_css_file("kvsim.css")
    app.add_js_file("kvsim.js", loading_method="defer")
    return {"parallel_read_safe": True, "parallel_write_safe": True}
