"""Numbers in the book's prose come from results: digits typed by hand are found and refused."""

import re
from pathlib import Path
from typing import NamedTuple

import pytest

BOOK = Path(__file__).parents[1] / "book"
PAGES = sorted(BOOK.glob("*.md"))

# What may stand in prose as it is, and why.
ALLOWED: dict[str, str] = {
    r"September 2026|2024-07-31": "dates of published work",
    r"FAST'25|MIT|Apache-2\.0|AgentX `?\d+`?": "names",
    r"\b(512|64)\b": "block sizes are part of the traces, as data/README.md has them",
    r"\b(100|0) %": "ends of a scale",
    r"Table 1\b": "of somebody else's paper",
}


class Typed(NamedTuple):
    """Digits in prose."""

    place: str
    text: str


def typed_digits(name: str, text: str) -> list[Typed]:
    """Return the digits that somebody typed into the prose of a page.

    Prose is what is no code (fences, indented blocks, spans), role (glue, citations, links), option
    of a directive, formula or list number. Captions of figures are prose.
    """
    found = []
    fence = ""  # of the open block: "" outside, "code", or "caption" in a directive with prose
    for number, line in enumerate(text.splitlines(), 1):
        opened = re.match(r"\s*(`{3,}|:{3,})\s*(\{[^}]+\})?", line)
        if opened:
            directive = opened.group(2) or ""
            prose = re.match(r"\{(glue:figure|figure|note|admonition|glossary|tip)", directive)
            fence = "" if fence else ("caption" if prose else "code")
            continue
        if fence == "code" or re.match(r"(    |\t)\S|\s*:[\w-]+:", line):
            continue
        for digits in re.findall(r"\S*\d\S*", _prose(line)):
            found.append(Typed(f"{name}:{number}", digits))
    return found


def _prose(line: str) -> str:
    line = re.sub(r"\{[\w:-]+\}`[^`]*`|`[^`]*`", "", line)  # roles and code
    line = re.sub(r"\]\([^)]*\)|https?://\S+|<[^>]+>", "]", line)  # targets of links
    line = re.sub(r"\$[^$]*\$", "", line)
    line = re.sub(r"^\s*#*\s*\d+\.\s", "", line)  # numbers of lists and headings
    for allowed in ALLOWED:
        line = re.sub(allowed, "", line)
    return line


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_no_digit_is_typed_into_prose(page):
    found = typed_digits(page.name, page.read_text())
    assert not found, "\n".join(f"{place}: {text!r}: glue it from results" for place, text in found)


@pytest.mark.parametrize(
    "text",
    [
        "LRU gains 12 points.",
        "at 40,000 blocks",
        "- a list with 3.5 %",
        "## A heading with 7 words",
        "| a table | 19 wins |",
        "```{glue:figure} fig\n:name: fig-9\n\nof weka 40 sessions\n```",
        "Some `code 1`, {glue:text}`x_2` and then 5 of them",
    ],
)
def test_typed_digits_are_found(text):
    (found,) = typed_digits("page.md", text)
    assert re.fullmatch(r"page\.md:\d", found.place)


@pytest.mark.parametrize(
    "text",
    [
        "No digits, {glue:text}`best_40` and {cite}`mooncake2025` and `--ttl 300`.",
        "```{code-cell} ipython3\nx = 8 * 3600\n```",
        "    kvsim simulate --capacity 10k",
        "1. first\n2. second\n### 3. third",
        "More in [](02_belady.ipynb) and [there](https://a.example/2026).",
        "A study of September 2026, in blocks of 512 tokens.",
        "```{glue:figure} fig_2\n:name: fig-2\n\nNo number here.\n```",
    ],
)
def test_other_digits_are_not(text):
    assert typed_digits("page.md", text) == []
