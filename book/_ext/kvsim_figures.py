"""Sphinx extension: what `chapter.show` put into a notebook becomes a numbered figure of panels."""

import json
import os
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.parsers.rst import Directive
from sphinx.application import Sphinx

SPECS = "kvsim_figures"  # of the page being read, by name


def take_figures(app: Sphinx, docname: str, source: list[str]) -> None:
    """Replace a notebook's figures by directives behind the cells that drew them."""
    if app.env.doc2path(docname, False).endswith(".ipynb"):
        notebook = json.loads(source[0])
        specs = app.env.temp_data.setdefault(SPECS, {})
        notebook["cells"] = [
            part for cell in notebook["cells"] for part in _with_figures_behind(cell, specs)
        ]
        source[0] = json.dumps(notebook)


def _with_figures_behind(cell: dict[str, Any], specs: dict[str, Any]) -> list[dict[str, Any]]:
    outputs = cell.get("outputs", [])
    found = [o["metadata"]["kvsim"] for o in outputs if "kvsim" in o.get("metadata", {})]
    if not found:
        return [cell]
    cell["outputs"] = [o for o in outputs if "kvsim" not in o.get("metadata", {})]
    specs.update({spec["name"]: spec for spec in found})
    text = "\n\n".join(f"```{{kvsim-figure}} {spec['name']}\n```" for spec in found)
    figures = {"cell_type": "markdown", "id": f"{cell['id']}-f", "metadata": {}, "source": text}
    return [cell, figures]


class FigureOfPanels(Directive):
    """A numbered figure: panels in a grid, each a link to its own picture, and the caption."""

    required_arguments = 1

    def run(self) -> Sequence[nodes.Node]:
        env = self.state.document.settings.env
        spec = env.temp_data[SPECS][self.arguments[0]]
        many = len(spec["panels"]) > 1
        figure = nodes.figure(classes=["kv-figure"])
        grid = nodes.container(classes=["kv-panels", "kv-many" if many else "kv-one"])
        for number, panel in enumerate(spec["panels"], 1):
            uri = self._write(f"{Path(env.docname).name}-{spec['name']}-{number}.svg", panel["svg"])
            # Sphinx links a picture with a width to its file.
            grid += nodes.image(uri=uri, alt=panel["alt"], width="100%")
        figure += grid
        words = nodes.Element()
        self.state.nested_parse([spec["caption"]], self.lineno, words)
        figure += nodes.caption("", "", *words[0].children)
        if spec["provenance"]:
            figure += nodes.legend("", nodes.raw("", _as_details(spec), format="html"))
        figure["names"].append(nodes.fully_normalize_name(spec["name"]))
        self.state.document.note_explicit_target(figure, figure)
        return [figure]

    def _write(self, name: str, svg: str) -> str:
        env = self.state.document.settings.env
        folder = Path(env.app.outdir).parent / "figures"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(svg, "utf-8")
        return "/" + os.path.relpath(folder / name, env.srcdir)


def _as_details(spec: dict[str, Any]) -> str:
    rows = "".join(
        "<dl>" + "".join(f"<dt>{escape(k)}</dt><dd>{escape(v)}</dd>" for k, v in entry) + "</dl>"
        for entry in spec["provenance"]
    )
    return (
        '<details class="kv-provenance"><summary>Where these numbers come from</summary>'
        f"{rows}</details>"
    )


def setup(app: Sphinx) -> dict[str, bool]:
    """Register with Sphinx."""
    app.connect("source-read", take_figures)
    app.add_directive("kvsim-figure", FigureOfPanels)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
