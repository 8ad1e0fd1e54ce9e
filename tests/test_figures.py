"""Figures: a panel a trace, few lines in colour, text that reads on a phone, stable SVG."""

import io
import json
import re

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from kvsim.report import chapter, figures, pictures

PHONE = 342  # pixels that a picture has at a screen of 390


@pytest.fixture(autouse=True)
def style():
    figures.use_style()
    yield
    plt.close("all")


def table(policies=7, traces=("weka", "sample"), points=20):
    rows = [
        {"trace": trace, "policy": f"p{policy}", "capacity": 2.0**step}
        | {"hit_ratio": (step + policy) / 40, "hit_gain": (step - policy) / 400}
        for trace in traces
        for policy in range(policies)
        for step in range(1, points)
    ]
    return pd.DataFrame(rows)


def colored(panel):
    return [line for line in panel.axes[0].get_lines() if not line.get_label().startswith("_")]


@pytest.mark.parametrize("draw", [figures.hit_ratio_by_capacity, figures.gain_by_capacity])
def test_a_panel_a_trace_with_at_most_four_lines_in_colour(draw):
    panels = draw(table())
    assert [panel.axes[0].get_title(loc="left") for panel in panels] == ["weka", "sample"]
    for panel in panels:
        assert [line.get_label() for line in colored(panel)] == ["p0", "p1", "p2", "p3"]
        grey = [line for line in panel.axes[0].get_lines() if line.get_color() == figures.GREY]
        assert len(grey) == 3
        assert "grey: p4, p5, p6" in pictures.svg(panel)


def test_lines_in_colour_can_be_chosen_and_keep_their_colour():
    both = [figures.hit_ratio_by_capacity(table(n), highlight=["p2", "p0"])[0] for n in (3, 7)]
    looks = [{line.get_label(): line.get_color() for line in colored(panel)} for panel in both]
    assert looks[0] == looks[1] == {"p2": figures.COLORS[0], "p0": figures.COLORS[1]}


@given(st.lists(st.floats(0, 1), max_size=4), st.floats(0.05, 0.25))
def test_labels_keep_apart_and_in_the_panel(places, gap):
    moved = figures._apart(sorted(places), gap)
    assert all(np.diff(moved) >= gap - 1e-9)
    assert all(place <= 1 + 1e-9 for place in moved)


def test_labels_stand_in_the_colour_of_their_lines():
    (panel, _) = figures.hit_ratio_by_capacity(table(2))
    lines = {line.get_label(): line.get_color() for line in colored(panel)}
    texts = {text.get_text(): text.get_color() for text in panel.axes[0].texts}
    assert texts == lines


def contrast(color):
    """Contrast with white, as WCAG counts it."""
    channels = [int(color[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 1.05 / (0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2] + 0.05)


@pytest.mark.parametrize("color", figures.COLORS[:4])
def test_labels_read_on_white(color):
    assert contrast(color) >= 4.5


@pytest.mark.parametrize("size", [figures.PANEL, figures.SINGLE])
def test_text_is_eleven_pixels_on_a_phone(size):
    figure, axis = plt.subplots(figsize=size)
    axis.set(xlabel="x", title="t")
    found = pictures.svg(figure)
    width = float(re.search(r'viewBox="0 0 ([\d.]+)', found)[1])
    sizes = [float(text) for text in re.findall(r"font(?:-size)?: (?:\w+ )*([\d.]+)px", found)]
    assert sizes
    assert min(sizes) * PHONE / width >= 10.9


def test_svg_is_the_same_twice_and_says_no_date():
    one, other = (pictures.svg(figures.hit_ratio_by_capacity(table())[0]) for _ in range(2))
    assert one == other
    assert not re.search(r"\d{4}-\d\d-\d\d|Matplotlib|\d\.\d{3,}", one)
    assert "<text" in one


def test_png_holds_all_panels():
    panels = figures.hit_ratio_by_capacity(table(2, ("a", "b", "c")))
    image = Image.open(io.BytesIO(pictures.png(panels)))
    width, height = (round(110 * inches) for inches in figures.PANEL)
    assert image.size == (2 * width, 2 * height)


def test_show_displays_a_picture_and_what_the_page_needs(monkeypatch):
    shown = []
    monkeypatch.setattr(chapter, "display", lambda data, **options: shown.append((data, options)))
    chapter.show(
        "fig-a",
        figures.hit_ratio_by_capacity(table()),
        caption="Two\n    lines.",
        alt="Every policy hits more in a larger cache.",
        experiment="belady",
    )
    ((data, options),) = shown
    assert set(data) == {"image/png", "text/plain"}
    figure = options["metadata"]["kvsim"]
    assert (figure["name"], figure["caption"]) == ("fig-a", "Two lines.")
    assert [panel["alt"] for panel in figure["panels"]] == [
        "Every policy hits more in a larger cache.",
        "Panel sample of the same figure.",
    ]
    stored = {entry["trace"]: entry for entry in map(dict, figure["provenance"])}
    assert len(stored["sample"]["SHA-256 of its source"]) == 64
    assert "slip_sessions" in json.loads(stored["sample"]["parameters"])


@pytest.mark.parametrize("alt", ["", "../_images/a.png", "A chart", "without capital letter."])
def test_alternative_text_must_be_a_sentence(alt):
    with pytest.raises(ValueError, match=r"figure fig-a: alt is .* write a sentence"):
        chapter.show("fig-a", figures.hit_ratio_by_capacity(table()), caption="c", alt=alt)


def test_long_labels_of_bars_leave_room_for_the_bars():
    label = "next use not advanced + 16 oldest leaves, conversation 20,000"
    rows = pd.DataFrame({"label": [label, "short"], "change": [-3.0, 1.0]})
    (figure,) = figures.changes(rows, "label", "change", "points")
    figure.draw_without_rendering()
    assert figure.axes[0].get_position().width > 0.4
