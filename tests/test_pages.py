"""The rendered book in a browser: light and dark, on a phone, a desk and paper."""

import functools
import http.server
import os
import re
import shutil
import threading
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
HTML = ROOT / "_build" / "html"
PAGES = sorted(str(path.relative_to(HTML)) for path in HTML.glob("book/*.html"))
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)
REQUIRED = os.environ.get("CI") == "true"

PHONE, DESK, PAPER = (390, 844), (1280, 900), (794, 1123)
WEIGHT = 700_000  # bytes a page may load, all told
TEXT = 9.0  # pixels that the smallest text of a figure has on a phone

LEVELS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]
COLORS = ["color-contrast"]  # all that a theme changes

every_page = pytest.mark.parametrize("page", PAGES)


def missing():
    if not PAGES:
        return "the book is not built (make html)"
    try:
        import axe_playwright_python  # noqa: F401
        import playwright  # noqa: F401
    except ImportError as error:
        return f"{error.name} is not installed"
    return "" if CHROMIUM else "there is no Chromium on this machine (apt-get install chromium)"


if missing() and not REQUIRED:
    pytest.skip(f"NO BROWSER TESTS: {missing()}", allow_module_level=True)


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args):
        pass


@pytest.fixture(scope="module")
def site():
    server = http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(Quiet, directory=str(HTML))
    )
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()


@pytest.fixture(scope="module")
def browser():
    assert not missing(), missing()
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        yield browser
        browser.close()


class Visit:
    """A page as opened, with what it said and fetched."""

    def __init__(self, browser, site, page, size=DESK, theme="light"):
        width, height = size
        self.context = browser.new_context(
            viewport={"width": width, "height": height}, color_scheme=theme
        )
        self.page = self.context.new_page()
        self.errors, self.outside, self.sizes = [], [], defaultdict(int)
        self.page.on("console", lambda m: m.type == "error" and self.errors.append(m.text))
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("request", lambda request: self._asked(request.url, site))
        self.page.on("response", self._answered)
        self.page.goto(site + page, wait_until="load")
        self.page.evaluate("document.fonts.ready.then(() => true)")

    def _asked(self, asked, site):
        if not asked.startswith((site, "data:", "blob:")):
            self.outside.append(asked)

    def _answered(self, response):
        if response.ok and not response.url.startswith("data:"):
            self.sizes[response.url] = len(response.body())

    def overflow(self):
        return self.page.evaluate(
            "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        )

    def axe(self, rules=LEVELS):
        """Return what axe-core finds, with the first elements, by rule."""
        from axe_playwright_python.sync_playwright import Axe

        found = Axe().run(self.page, options={"runOnly": rules}).response["violations"]
        return {rule["id"]: [node["html"][:120] for node in rule["nodes"]][:3] for rule in found}


@pytest.fixture
def visit(browser, site):
    opened = []

    def visit(page, **options):
        opened.append(Visit(browser, site, page, **options))
        return opened[-1]

    yield visit
    for one in opened:
        one.context.close()


def test_nothing_is_missing():
    assert not missing()


@every_page
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_desk(visit, page, theme):
    seen = visit(page, theme=theme)
    assert seen.page.evaluate("document.documentElement.dataset.theme") == theme
    assert (seen.errors, seen.outside, seen.overflow()) == ([], [], 0)
    assert seen.axe(LEVELS if theme == "light" else COLORS) == {}
    assert sum(seen.sizes.values()) <= WEIGHT
    assert seen.page.locator("article h1").count() == 1
    cut = """[...document.querySelectorAll(".kv-table")]
        .filter((box) => !box.closest("details") && box.scrollWidth > box.clientWidth + 1)
        .map((box) => box.innerText.slice(0, 60))"""
    assert seen.page.evaluate(cut) == []


@every_page
def test_phone(visit, page):
    seen = visit(page, size=PHONE, theme="dark")
    assert (seen.errors, seen.outside, seen.overflow()) == ([], [], 0)
    assert seen.axe() == {}
    assert {name: size for name, size in figure_text(seen.page) if size < TEXT} == {}


def figure_text(page):
    """Each figure's file and the size of its smallest text in pixels of the screen."""
    shown = page.evaluate(
        """[...document.querySelectorAll("article img")]
        .map((img) => [img.src, img.getBoundingClientRect().width])"""
    )
    for source, width in shown:
        if source.endswith(".svg"):
            svg = (HTML / "_images" / source.rsplit("/", 1)[1]).read_text()
            native = float(re.search(r'viewBox="0 0 ([\d.]+)', svg)[1])
            sizes = re.findall(r"font(?:-size)?: (?:[\w.]+ )*([\d.]+)px", svg)
            yield source.rsplit("/", 1)[1], min(map(float, sizes)) * width / native


@every_page
def test_paper(visit, page):
    seen = visit(page, size=PAPER)
    seen.page.emulate_media(media="print")
    seen.page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert seen.overflow() == 0
    cut = """[...document.querySelectorAll("article :is(table, img, pre)")]
        .filter((one) => one.getBoundingClientRect().right > innerWidth + 1)
        .map((one) => one.outerHTML.slice(0, 80))"""
    assert seen.page.evaluate(cut) == []
    closed = "document.querySelectorAll('details.kv-all:not([open])').length"
    assert seen.page.evaluate(closed) == 0


@every_page
def test_alternative_texts_are_sentences(page):
    images = re.findall(r"<img [^>]*>", (HTML / page).read_text().split("<article", 1)[1])
    alts = [re.search(r'alt="([^"]*)"', image)[1] for image in images]
    assert [alt for alt in alts if not re.fullmatch(r"[A-Z].{18,}[.!?]", alt)] == []


def test_search_finds_liveness(visit):
    seen = visit("search.html?q=liveness")
    seen.page.wait_for_selector("#search-results li", timeout=10_000)
    assert seen.page.locator("#search-results li").count() >= 1
    assert (seen.errors, seen.outside) == ([], [])


def test_columns_sort_and_figures_enlarge(visit):
    seen = visit("book/08_policies.html")
    table = seen.page.locator("table.kv-sortable").first
    table.locator("xpath=ancestor::details").evaluate("one => one.open = true")
    names = table.locator("tbody th").all_inner_texts()
    table.locator("thead button").first.click()
    assert table.locator("tbody th").all_inner_texts() == sorted(names, key=str.casefold)
    seen.page.locator(".kv-panels a").first.click()
    assert seen.page.locator("dialog.kv-large[open] img").count() == 1


def test_folded_tables_open_without_scripts(browser, site):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(f"{site}book/08_policies.html")
    fold = page.locator("details.kv-all").first
    fold.locator("summary").click()
    assert fold.locator("table").is_visible()
    context.close()
