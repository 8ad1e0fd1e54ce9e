import re
from pathlib import Path

from kvsim.cache.policies import POLICIES
from kvsim.report import citations
from kvsim.traces.registry import SAMPLE, known_names

BOOK = Path(__file__).parents[1] / "book"
KEYS = re.findall(r"^@\w+\{([^,\s]+),", (BOOK / "references.bib").read_text(), re.MULTILINE)


def cited_in_the_book():
    text = "\n".join(path.read_text() for path in BOOK.glob("*.md"))
    found = re.findall(r"\{cite[^}]*\}`([^`]+)`", text)
    return {key.strip() for keys in found for key in keys.split(",")}


def test_every_policy_has_a_source_or_says_why_not():
    assert set(citations.POLICIES) | set(citations.NO_SOURCE) == set(POLICIES)
    assert set(citations.POLICIES) & set(citations.NO_SOURCE) == set()
    assert all(citations.POLICIES.values())
    for name, reason in citations.NO_SOURCE.items():
        assert POLICIES[name].source == reason


def test_every_trace_has_a_source():
    assert set(citations.TRACES) == set(known_names()) - {SAMPLE}


def test_every_key_is_in_the_bibliography_once():
    assert len(KEYS) == len(set(KEYS))
    used = [key for keys in (citations.POLICIES | citations.TRACES).values() for key in keys]
    assert set(used) - set(KEYS) == set()
    assert cited_in_the_book() - set(KEYS) == set()


def test_the_book_cites_every_policys_source_the_study_and_the_traces_used():
    sources = {key for keys in citations.POLICIES.values() for key in keys}
    assert sources - cited_in_the_book() == set()
    assert {"study2026", "mooncake2025", "kvcachetester"} - cited_in_the_book() == set()
