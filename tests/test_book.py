"""Chapters hold prose and calls, notebooks are executed and current, pages are self-contained."""

import ast
import importlib.util
import re
from html.parser import HTMLParser
from pathlib import Path

import jupytext
import nbformat
import pytest
import yaml

ROOT = Path(__file__).resolve().parent.parent
BOOK = ROOT / "book"
HTML = ROOT / "_build" / "html"
spec = importlib.util.spec_from_file_location("book_build", BOOK / "build.py")
build = importlib.util.module_from_spec(spec)
spec.loader.exec_module(build)

TOC = (ROOT / "_toc.yml").read_text()
CHAPTERS = re.findall(r": book/(\w+)\.ipynb$", TOC, re.MULTILINE)

LOGIC = (
    *(ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda),
    *(ast.For, ast.AsyncFor, ast.While, ast.If, ast.IfExp, ast.Match, ast.Try),
    *(ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp),
)

every_chapter = pytest.mark.parametrize("chapter", CHAPTERS)


def source(chapter):
    return jupytext.read(BOOK / f"{chapter}.md", fmt="md:myst")


def notebook(chapter):
    return nbformat.read(BOOK / f"{chapter}.ipynb", as_version=4)


def params(chapter):
    return yaml.safe_load((BOOK / "params" / f"{chapter}.yml").read_text()) or {}


def code_cells(nb):
    return [cell for cell in nb.cells if cell.cell_type == "code"]


def tagged(nb, tag):
    return [cell for cell in nb.cells if tag in cell.metadata.get("tags", ())]


def logic_in(code):
    """Names of the constructs that belong in the package and not in a chapter."""
    code = re.sub(r"^[%!].*$", "", code, flags=re.MULTILINE)
    return [type(node).__name__ for node in ast.walk(ast.parse(code)) if isinstance(node, LOGIC)]


@pytest.mark.parametrize("page", sorted(BOOK.glob("*.md")), ids=lambda page: page.stem)
def test_is_in_the_table_of_contents(page):
    assert page.stem in CHAPTERS or f"file: book/{page.name}" in TOC


@every_chapter
def test_cells_hold_calls_only(chapter):
    found = {cell.source: logic_in(cell.source) for cell in code_cells(source(chapter))}
    assert {code: logic for code, logic in found.items() if logic} == {}


@every_chapter
def test_has_one_parameters_cell(chapter):
    assert len(tagged(source(chapter), "parameters")) == 1


@every_chapter
def test_notebook_is_made_from_the_source(chapter):
    cells = [
        cell
        for cell in notebook(chapter).cells
        if "injected-parameters" not in cell.metadata.get("tags", ())
    ]
    values = build.glued(notebook(chapter))
    stale = f"book/{chapter}.ipynb is stale: run `make book` and commit it"
    assert [(cell.cell_type, cell.source) for cell in cells] == [
        (cell.cell_type, cell.source if code else build.with_values(cell.source, values))
        for cell in source(chapter).cells
        for code in [cell.cell_type == "code"]
    ], stale


@every_chapter
def test_notebook_has_the_committed_parameters(chapter):
    injected = "\n".join(cell.source for cell in tagged(notebook(chapter), "injected-parameters"))
    assert {
        line.targets[0].id: ast.literal_eval(line.value) for line in ast.parse(injected).body
    } == params(chapter)


@every_chapter
def test_every_cell_was_executed_in_order_without_errors(chapter):
    cells = code_cells(notebook(chapter))
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    outputs = [output for cell in cells for output in cell.outputs]
    assert [output for output in outputs if output.output_type == "error"] == []
    assert [output.text for output in outputs if output.get("name") == "stderr"] == []


class Requests(HTMLParser):
    """Collects what a page makes a browser fetch as soon as it is opened."""

    LOADS = ("script", "img", "iframe", "source", "video", "audio", "embed", "object")

    def __init__(self):
        super().__init__()
        self.urls = []
        self.inline = ""  # name of the open <script> or <style>

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        if tag in self.LOADS:
            self.urls += [attrs.get(key) or "" for key in ("src", "srcset", "data")]
        # <link rel="search"> and such name a page; these are fetched
        if tag == "link" and re.search("stylesheet|icon|pre|font", attrs.get("rel", "")):
            self.urls.append(attrs.get("href") or "")
        self.urls += css_urls(attrs.get("style") or "")
        self.inline = tag if tag in ("script", "style") else ""

    def handle_endtag(self, tag):
        self.inline = ""

    def handle_data(self, data):
        if self.inline == "style":
            self.urls += css_urls(data)
        if self.inline == "script":
            self.urls += re.findall(r"https?://[^\s\"'`<>]+", data)


def css_urls(css):
    return re.findall(r"""url\(\s*["']?([^"')]+)""", css) + re.findall(
        r"""@import\s+["']([^"']+)""", css
    )


def outside(urls):
    return [url for url in urls if re.match(r"\s*(https?:)?//", url)]


def test_no_page_asks_another_machine():
    if not HTML.exists():
        pytest.skip("the book is not built (make html)")
    found = {}
    for page in HTML.rglob("*.html"):
        requests = Requests()
        requests.feed(page.read_text())
        found[page.relative_to(HTML)] = outside(requests.urls)
    for sheet in HTML.rglob("*.css"):
        found[sheet.relative_to(HTML)] = outside(css_urls(sheet.read_text()))
    assert {file: urls for file, urls in found.items() if urls} == {}
    assert len(found) > len(CHAPTERS)


@pytest.mark.parametrize(
    "page",
    [
        '<script src="https://a.example/x.js"></script>',
        '<script>const u = "https://a.example/x.js"</script>',
        '<link rel="stylesheet" href="//a.example/x.css">',
        '<img src="http://a.example/x.png">',
        "<style>@import 'https://a.example/x.css';</style>",
        '<p style="background: url(https://a.example/x.png)">',
    ],
)
def test_requests_are_found(page):
    requests = Requests()
    requests.feed(page)
    assert len(outside(requests.urls)) == 1


def test_links_to_other_sites_are_no_requests():
    requests = Requests()
    requests.feed('<a href="https://a.example/">x</a><img src="../x.png">')
    assert outside(requests.urls) == []


@pytest.mark.parametrize(
    "code",
    [
        "def f(): pass",
        "class A: pass",
        "f = lambda: 0",
        "for x in y: pass",
        "while x: pass",
        "if x: pass",
        "y = 1 if x else 2",
        "[x for x in y]",
        "{x for x in y}",
        "{x: x for x in y}",
        "sum(x for x in y)",
    ],
)
def test_logic_is_found(code):
    assert len(logic_in(code)) == 1
