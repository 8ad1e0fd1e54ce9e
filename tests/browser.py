"""Pages as a browser sees them: what they say, fetch, weigh, and what axe-core finds in them."""

import importlib.util
import os
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
HTML = ROOT / "_build" / "html"
PHONE, DESK, PAPER = (390, 844), (1280, 900), (794, 1123)
LEVELS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]
COLORS = ["color-contrast"]  # all that a theme changes
REQUIRED = os.environ.get("CI") == "true"


def load():
    """The module that starts Chromium, which is no part of the package."""
    spec = importlib.util.spec_from_file_location("book_browser", ROOT / "book" / "browser.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def missing():
    """What a test in the browser lacks here, "" for nothing."""
    if not HTML.exists():
        return "the book is not built (make html)"
    try:
        import axe_playwright_python  # noqa: F401

        chromium = load().CHROMIUM
    except ImportError as error:
        return f"{error.name} is not installed"
    return "" if chromium else "there is no Chromium on this machine (apt-get install chromium)"


def skip_without_browser():
    """Skip a module loudly; where CI is true the tests run and fail instead."""
    if missing() and not REQUIRED:
        pytest.skip(f"NO BROWSER TESTS: {missing()}", allow_module_level=True)


@pytest.fixture(scope="session")
def site():
    with load().serving() as address:
        yield address


@pytest.fixture(scope="session")
def browser():
    if missing() and not REQUIRED:
        pytest.skip(f"NO BROWSER TESTS: {missing()}")
    assert not missing(), missing()
    with load().chromium() as browser:
        yield browser


class Visit:
    """A page as opened, with what it said and fetched."""

    def __init__(self, browser, site, page, size=DESK, theme="light"):
        width, height = size
        self.context = browser.new_context(
            viewport={"width": width, "height": height},
            color_scheme=theme,
            reduced_motion="reduce",  # colours in transition have no contrast to measure
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
        """Pixels by which the page is wider than the screen."""
        return self.page.evaluate(
            "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        )

    def axe(self, rules=LEVELS):
        """What axe-core finds, with the first elements, by rule."""
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
