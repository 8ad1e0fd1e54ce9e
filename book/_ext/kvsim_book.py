"""Sphinx extension of the book: what every page carries, and nothing from another machine."""

import os
import re
import subprocess
from html import escape
from pathlib import Path
from typing import Any

import yaml
from sphinx.application import Sphinx
from sphinx.config import Config
from sphinx.errors import ConfigError

ROOT = Path(__file__).resolve().parent.parent.parent
REPOSITORY = "KVSIM_REPOSITORY"  # environment variable, owner/name on GitHub


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


def repository() -> str:
    """Return the address of the repository that the build is told, "" if it is told none."""
    name = os.environ.get(REPOSITORY, "")
    if name and not re.fullmatch(r"[\w.-]+/[\w.-]+", name):
        raise ConfigError(f"{REPOSITORY} is {name!r}; write owner/name")
    return name and f"https://github.com/{name}"


def set_shell(app: Sphinx, config: Config) -> None:
    """Put the foot on every page, and buttons where there is something they can lead to."""
    options = config.html_theme_options
    options["extra_footer"] = foot(repository())
    if repository():
        options |= {
            "repository_url": repository(),
            "repository_branch": "main",
            "use_repository_button": True,
            "use_edit_page_button": True,
            "launch_buttons": {
                "binderhub_url": "https://mybinder.org",
                "notebook_interface": "jupyterlab",
            },
        }


def edit_the_source(app: Sphinx, page: str, template: str, context: dict[str, Any], _: Any) -> None:
    """Let the edit button open a chapter's text instead of the notebook made from it."""
    for group in context.get("header_buttons", []):
        for button in [group, *group.get("buttons", [])]:
            if "/edit/" in button.get("url", ""):
                button["url"] = re.sub(r"\.ipynb$", ".md", button["url"])


def foot(address: str) -> str:
    """Return the foot of every page: version, commit, dates, licences, how to cite."""
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    commit = _git("rev-parse", "--short=12", "HEAD")
    results = _git("log", "-1", "--format=%cs", "--", "results")
    facts = [f"kvsim {citation['version']}"]
    facts += [f"commit <code>{commit}</code>"] if commit else []
    facts += [f"results of {results}"] if results else []
    licences = "Text, software, results: MIT. Traces: Apache-2.0 (Mooncake, WEKA), MIT (sample)."
    return (
        f'<div class="kv-foot"><p>{", ".join(facts)}. {licences}</p>'
        "<details><summary>How to cite</summary>"
        f"<pre tabindex='0'>{escape(bibtex(citation, commit, address))}</pre></details></div>"
    )


def bibtex(citation: dict[str, Any], commit: str, address: str) -> str:
    """Return a BibTeX entry made from CITATION.cff."""
    fields = {
        "author": " and ".join(f"{{{author['name']}}}" for author in citation["authors"]),
        "title": f"{{{citation['title']}}}",
        "version": citation["version"],
        "year": str(citation["date-released"])[:4],
        "note": f"commit {commit}" if commit else "",
        "url": address,
    }
    lines = [f"  {name} = {{{value}}}," for name, value in fields.items() if value]
    return "\n".join(["@software{kvsim,", *lines, "}"])


def _git(*arguments: str) -> str:
    command = ["git", "-C", str(ROOT), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def setup(app: Sphinx) -> dict[str, bool]:
    """Register with Sphinx."""
    app.connect("config-inited", drop_thebe, priority=900)
    app.connect("config-inited", set_shell)
    app.connect("html-page-context", mend_roles)
    app.connect("html-page-context", edit_the_source, priority=900)
    app.add_css_file("kvsim.css")
    app.add_js_file("kvsim.js", loading_method="defer")
    return {"parallel_read_safe": True, "parallel_write_safe": True}
