"""Tables of the pages: flat headings, one unit, few rows in the text, all of them as CSV."""

import base64
import io
import re
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvsim.experiments import EXPERIMENTS
from kvsim.report.results import load_tables
from kvsim.report.tables import Table, duration, one_decimal, plain
from kvsim.report.words import value_words, words

FRAME = pd.DataFrame(
    {
        "policy": [f"p{number:02d}" for number in range(20)],
        "hit_ratio": np.linspace(0, 1, 20),
        "hit_gain": np.linspace(-0.2, 0.18, 20),
        **{f"other_{number}": range(20) for number in range(8)},
    }
)


class Tables(HTMLParser):
    """Cells of every table, a list of rows each, and the headings' scopes."""

    def __init__(self, html):
        super().__init__()
        self.tables, self.scopes, self.links = [], [], []
        self.cell = None
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        if tag == "table":
            self.tables.append([])
        if tag == "tr":
            self.tables[-1].append([])
        if tag in ("th", "td"):
            self.tables[-1][-1].append("")
            self.cell = True
        if tag == "th":
            self.scopes.append(attrs.get("scope"))
        if tag == "a":
            self.links.append(attrs)

    def handle_endtag(self, tag):
        if tag in ("th", "td"):
            self.cell = None

    def handle_data(self, data):
        if self.cell:
            self.tables[-1][-1][-1] += data


def shown(frame, **options):
    return Tables(Table(frame, **options)._repr_html_())


def test_text_holds_eight_rows_and_seven_columns_and_the_fold_the_rest():
    text, whole = shown(FRAME, caption="Twenty policies.").tables
    assert (len(text) - 1, len(text[0])) == (8, 7)
    assert (len(whole) - 1, len(whole[0])) == FRAME.shape


def test_small_table_is_not_folded():
    html = Table(FRAME.iloc[:8, :7])._repr_html_()
    assert "<details" not in html
    assert len(Tables(html).tables) == 1


def test_columns_of_the_text_can_be_chosen():
    text, _ = shown(FRAME, columns=["policy", "other_7"], rows=3).tables
    assert text == [["policy", "other 7"], ["p00", "0"], ["p01", "1"], ["p02", "2"]]


def test_units_are_stated_once_and_numbers_have_one_decimal():
    text = shown(FRAME.iloc[:2, :3]).tables[0]
    assert text[0] == ["policy", "hit ratio (%)", "gain over LRU (points)"]
    assert text[1:] == [["p00", "0.0", "−20.0"], ["p01", "5.3", "−18.0"]]


def test_unit_of_a_pivoted_table_is_given():
    wide = FRAME.head(2).pivot_table(index="policy", columns="other_1", values="hit_gain")
    assert shown(wide, unit="points").tables[0][1] == ["p00", "−20.0", ""]


def test_units_can_be_given_by_column():
    frame = pd.DataFrame({"policy": ["2q"], "low": [1.23], "high": [0.05], "n": [2.0]})
    table = shown(frame, unit={"low": "pp", "high": "%"}).tables[0]
    assert table == [["policy", "low (points)", "high (%)", "n"], ["2q", "+1.2", "5.0", "2"]]


def test_headings_of_levels_are_flat_and_never_empty():
    rows = FRAME.head(4).assign(trace=["a", "a", "b", "b"])
    wide = rows.pivot_table(index=["trace"], columns="policy", values=["hit_gain", "other_1"])
    found = shown(wide, columns=99)
    head = found.tables[0][0]
    assert head[:2] == ["trace", "gain over LRU, p00 (points)"]
    assert all(head)
    assert set(found.scopes) == {"col", "row"}
    assert all(shown(wide.T).tables[0][0])


def test_row_of_a_quantity_has_the_quantitys_unit():
    frame = pd.DataFrame(
        {"quantity": ["gap_p50_s", "duty_share", "span_h"], "ours": [4980.0, 0.5, 72]}
    )
    rows = [["gap median", "1.4 h"], ["duty", "50.0 %"], ["span", "3 d"]]
    assert shown(frame).tables[0][1:] == rows


def test_csv_holds_every_row_at_full_precision():
    (link,) = shown(FRAME, key="policies").links
    kind, data = link["href"].split(",")
    assert (kind, link["download"]) == ("data:text/csv;base64", "policies.csv")
    back = pd.read_csv(io.BytesIO(base64.b64decode(data)))
    pd.testing.assert_frame_equal(back, FRAME)


def test_text_of_cells_is_escaped():
    html = Table(pd.DataFrame({"a": ["<b>"]}), caption='x < "y"')._repr_html_()
    assert "<b>" not in html
    assert 'aria-label="x &lt; &quot;y&quot;"' in html


@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_no_heading_of_the_results_is_an_identifier(experiment):
    for frame in load_tables("sample", experiment).values():
        heads = shown(frame, columns=99).tables[0][0]
        assert [head for head in heads if "_" in head or re.search(r"\bp\d\d\b", head)] == []


@given(st.floats(-1e6, 1e6))
def test_no_number_is_minus_zero(value):
    for text in (one_decimal(value), one_decimal(value, signed=True), plain(value)):
        assert not re.fullmatch(r"[-−+]0(\.0)?", text)
        assert "-" not in text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.3, "0.3 s"), (59, "59 s"), (60, "1 min"), (4980, "1.4 h"), (478_976.454, "5.5 d")],
)
def test_durations_are_in_the_unit_one_thinks_in(seconds, text):
    assert duration(seconds) == text


def test_identifiers_become_words_and_policies_keep_their_names():
    assert words("ttl_s") == "TTL"
    assert words("session_requests") == "session requests"
    assert [value_words(name) for name in ("lru", "lru-k", "2q")] == ["LRU", "lru-k", "2q"]
