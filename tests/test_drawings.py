"""The drawn prefix tree is what the reference simulator does, and each property matters in it."""

import re

from kvsim.cache.engine import Switches
from kvsim.cache.sweep import simulate
from kvsim.report import drawings
from tests.strategies import to_trace


def test_hits_of_every_variant_are_the_engine_s():
    rows = [row._replace(chain=tuple(map(ord, row.chain))) for row in drawings.requests()]
    trace = to_trace(rows, block_size=1)
    hits = {
        name: int(simulate(trace, "fifo", 6, switches=Switches(**switches)).hit_blocks.sum())
        for name, switches in drawings.VARIANTS.items()
    }
    assert drawings.outcomes() == hits


def test_each_property_changes_the_outcome():
    as_it_is, flat, flat_set, no_pins, no_pins_set = drawings.outcomes().values()
    assert flat < as_it_is
    assert no_pins < as_it_is
    assert flat < flat_set
    assert no_pins < no_pins_set


def test_frames_follow_from_each_other():
    before: set[str] = set()
    steps = drawings.frames()
    for step, prompt in zip(steps, drawings.PROMPTS, strict=True):
        assert step.chain == prompt
        assert step.hits == prompt[: len(step.hits)]
        assert set(step.hits) <= before
        assert not set(step.removed) & set(step.chain)
        assert (before - set(step.removed)) | set(step.inserted) == set(step.resident)
        assert len(step.resident) <= drawings.CAPACITY
        before = set(step.resident)
    assert sum(len(step.hits) for step in steps) == next(iter(drawings.outcomes().values()))


def test_every_frame_has_a_sentence_that_names_what_went():
    drawn = drawings.prefix_tree()
    labels = re.findall(r'role="img" aria-label="([^"]+)"', drawn)
    captions = re.findall(r"<figcaption>(.*?)</figcaption>", drawn)
    assert labels == captions
    assert len(labels) == len(drawings.PROMPTS)
    for sentence, step in zip(labels, drawings.frames(), strict=True):
        assert ", ".join(step.removed) in sentence
        assert ("hits nothing" in sentence) == (not step.hits)
    assert len(set("".join(drawings.PROMPTS))) == 12
