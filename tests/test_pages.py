"""The rendered book in a browser: light and dark, on a phone, a desk and paper."""

import re

import pytest

from tests.browser import COLORS, HTML, LEVELS, PAPER, PHONE, missing, skip_without_browser

PAGES = sorted(str(path.relative_to(HTML)) for path in HTML.glob("book/*.html"))
WEIGHT = 700_000  # bytes a page may load, all told
TEXT = 9.0  # pixels that the smallest text of a figure has on a phone

skip_without_browser()

every_page = pytest.mark.parametrize("page", PAGES)


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
    seen = visit("book/policies.html")
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
    page.goto(f"{site}book/policies.html")
    fold = page.locator("details.kv-all").first
    fold.locator("summary").click()
    assert fold.locator("table").is_visible()
    context.close()
