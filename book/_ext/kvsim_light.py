"""Sphinx extension: pages carry only the styles, glyphs and formulas that they show."""

import logging
import re
from pathlib import Path

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml
from fontTools import subset
from sphinx.application import Sphinx
from sphinx.config import Config
from sphinx.writers.html5 import HTML5Translator

RULE = re.compile(r"([^{}@;]+)\{([^{}]*)\}")
COMMENT = re.compile(r"(/\*.*?\*/)", re.DOTALL)
CLASS = re.compile(r"\.(-?[a-zA-Z_][\w-]*)")
NEGATED = re.compile(r":(?:not|is|where)\([^()]*\)")
COMMA = re.compile(r",(?![^(\[]*[)\]])")
GLYPH = re.compile(r'"\\(f[0-9a-f]{3})"')
FACE = re.compile(r"url\(([^)]*fa-[\w-]+)\.woff2\)[^;}]*")
# Scripts put these names together out of parts.
COMPOSED = ("bs-", "kind-", "show", "fade", "collaps", "tooltip", "modal")


def inline_math(translator: HTML5Translator, node: nodes.math) -> None:
    """Write a formula as MathML, which browsers draw without a script."""
    translator.body.append(tex2mathml(node.astext(), as_block=False))
    raise nodes.SkipNode


def block_math(translator: HTML5Translator, node: nodes.math_block) -> None:
    """Write a displayed formula as MathML."""
    translator.body.append(translator.starttag(node, "div", CLASS="math"))
    translator.body.append(tex2mathml(node.astext(), as_block=True) + "</div>\n")
    raise nodes.SkipNode


def without_unused_rules(css: str, words: set[str]) -> str:
    """Drop the selectors that ask for a class which is no word of any page or script."""

    def rule(match: re.Match[str]) -> str:
        kept = [one for one in COMMA.split(match[1]) if _may_match(one, words)]
        return f"{','.join(kept)}{{{match[2]}}}" if kept else ""

    parts = COMMENT.split(css)
    parts[::2] = [RULE.sub(rule, part) for part in parts[::2]]
    return "".join(part for part in parts if not part.startswith("/*") or part.startswith("/*!"))


def _may_match(selector: str, words: set[str]) -> bool:
    classes = CLASS.findall(NEGATED.sub("", selector))
    return all(name in words or name.startswith(COMPOSED) for name in classes)


def lighten(app: Sphinx, error: Exception | None) -> None:
    """Reduce the style sheets and icon fonts of a finished site to what its pages use."""
    if error or app.builder.format != "html":
        return
    site = Path(app.outdir)
    static = site / "_static"
    texts = [*site.rglob("*.html"), *static.rglob("*.js")]
    words = {word for path in texts for word in re.findall(r"[\w-]+", path.read_text("utf-8"))}
    glyphs: set[int] = set()
    for sheet in static.rglob("*.css"):
        css = without_unused_rules(sheet.read_text("utf-8"), words)
        glyphs |= {int(code, 16) for code in GLYPH.findall(css)}
        sheet.write_text(FACE.sub(r'url(\1.woff) format("woff")', css), "utf-8")
    for font in static.rglob("fa-*.ttf"):
        _reduce(font, glyphs)
    for unused in (*static.rglob("*.map"), *static.rglob("fontawesome.js")):
        unused.unlink()


def _reduce(font: Path, glyphs: set[int]) -> None:
    options = subset.Options(flavor="woff", notdef_outline=True)
    face = subset.load_font(str(font), options)
    subsetter = subset.Subsetter(options)
    subsetter.populate(unicodes=glyphs)
    subsetter.subset(face)
    subset.save_font(face, str(font.with_suffix(".woff")), options)
    font.unlink()
    font.with_suffix(".woff2").unlink(missing_ok=True)


def use_templates(app: Sphinx, config: Config) -> None:
    """Let the templates beside this file come before the theme's."""
    config.templates_path = [*config.templates_path, str(Path(__file__).parent / "templates")]


def setup(app: Sphinx) -> dict[str, bool]:
    """Register with Sphinx."""
    logging.getLogger("fontTools").setLevel(logging.WARNING)
    app.add_html_math_renderer("mathml", (inline_math, None), (block_math, None))
    app.connect("config-inited", use_templates)
    app.connect("build-finished", lighten, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
