"""Figures known to be right on the published traces, exactly."""

import msgspec
import numpy as np
import pytest

from kvsim.cache.bounds import infinite, opt
from kvsim.cache.curves import lru_curve
from kvsim.cache.engine import Switches, replay
from kvsim.cache.policies import POLICIES
from kvsim.traces import readers, registry
from kvsim.traces.arrivals import arrange, cut
from kvsim.traces.readers.ids import BlockIds
from kvsim.traces.readers.weka import Request, Session, documents
from kvsim.traces.trace import Trace
from tests.traces import real

pytestmark = pytest.mark.real
SIZES = (1_000, 10_000, 30_000, 50_000, 100_000)


def hits(trace: Trace, policy: str, capacity: int, **switches: str | bool) -> int:
    """Return hit blocks, with OPT and the infinite cache by name."""
    settings = Switches(**switches)  # type: ignore[arg-type]
    if policy in ("opt", "infinite"):
        result = (opt if policy == "opt" else infinite)(trace, capacity, settings)
    else:
        result = replay(trace, POLICIES[policy], capacity, switches=settings)
    return int(result.hit_blocks.sum())


def test_conversation() -> None:
    trace = real("conversation")
    assert (trace.requests, trace.blocks, trace.distinct_blocks) == (12_031, 288_500, 182_790)
    assert trace.input_tokens.sum() == 144_793_823
    assert (trace.infinite_hit_blocks, trace.infinite_hit_tokens) == (105_710, 54_098_411)
    assert np.count_nonzero(np.diff(trace.arrival) == 0) == 10_851
    assert trace.sessions is None


def test_conversation_engine_hit_cap() -> None:
    trace = real("conversation")
    assert hits(trace, "infinite", trace.distinct_blocks, hit_cap="engine") == 105_592
    assert hits(trace, "lru", trace.distinct_blocks, hit_cap="engine") == 105_592


FLAT = {"eviction": "flat"}
ROOT_OLDEST = {"touch_order": "root-oldest"}
NO_PINS = {"pinning": False}
CONVERSATION = [
    ("lru", {}, (12_847, 61_046, 93_978, 102_290, 104_924)),
    ("lru", FLAT, (12_847, 61_046, 93_978, 102_290, 104_924)),
    ("lru", FLAT | ROOT_OLDEST, (12_831, 60_921, 93_967, 102_290, 104_924)),
    ("fifo", FLAT | NO_PINS, (12_509, 52_351, 84_936, 96_228, 102_794)),
    ("fifo", FLAT, (12_824, 52_338, 84_635, 96_231, 102_804)),
    ("fifo", {}, (12_842, 60_852, 93_985, 102_250, 104_922)),
    ("lfu", {}, (13_871, 38_004, 79_613, 99_205, 104_755)),
    ("lfu", FLAT, (13_871, 38_004, 79_613, 99_205, 104_755)),
]


@pytest.mark.parametrize(("policy", "switches", "expected"), CONVERSATION, ids=str)
def test_conversation_policies(
    policy: str, switches: dict[str, str | bool], expected: tuple[int, ...]
) -> None:
    trace = real("conversation")
    assert tuple(hits(trace, policy, size, **switches) for size in SIZES) == expected


def test_conversation_tokens_and_curve() -> None:
    trace = real("conversation")
    tokens = [int(replay(trace, POLICIES["lru"], size).hit_tokens.sum()) for size in SIZES]
    assert tokens == [6_575_459, 31_238_981, 48_093_740, 52_347_371, 53_695_979]
    curve = lru_curve(trace)
    assert tuple(curve[list(SIZES)]) == CONVERSATION[0][2]
    assert curve[-1] == 105_710


@pytest.mark.parametrize(("capacity", "expected"), [(1_000, 55_019), (8_137, 105_709)])
def test_conversation_optimum(capacity: int, expected: int) -> None:
    assert hits(real("conversation"), "opt", capacity) == expected


@pytest.mark.parametrize("capacity", [8_138, 9_000, 50_000, 182_790])
def test_conversation_optimum_saturates(capacity: int) -> None:
    assert hits(real("conversation"), "opt", capacity) == 105_710


def test_conversation_start_with_and_without_pins() -> None:
    trace = real("conversation")
    start = trace.select(np.arange(6_000))
    assert hits(start, "lru", 300) == 6_089
    assert hits(start, "belady", 300) == 11_633
    assert hits(start, "belady", 300, pinning=False) == 16_385


def test_synthetic() -> None:
    trace = real("synthetic")
    assert (trace.requests, trace.blocks, trace.infinite_hit_blocks) == (3_993, 121_877, 77_953)
    expected = (10_252, 51_669, 76_077, 77_953, 77_953)
    assert tuple(hits(trace, "lru", size) for size in SIZES) == expected


def ratios(trace: Trace) -> tuple[float, float, float]:
    """Return an infinite cache's hits over blocks, full blocks, and tokens."""
    full = trace.input_tokens // trace.block_size
    return (
        trace.infinite_hit_blocks / trace.blocks,
        np.minimum(trace.seen_blocks, full).sum() / full.sum(),
        trace.infinite_hit_tokens / trace.input_tokens.sum(),
    )


@pytest.mark.parametrize(
    ("name", "blocks", "full_blocks", "tokens"),
    [
        ("conversation", 0.366, 0.382, 0.374),
        ("toolagent", 0.553, 0.587, None),
        ("synthetic", 0.640, 0.659, 0.651),
    ],
)
def test_saturated_ratios(
    name: str, blocks: float, full_blocks: float, tokens: float | None
) -> None:
    found = ratios(real(name))
    assert round(found[0], 3) == blocks
    assert round(found[1], 3) == full_blocks
    assert tokens is None or round(found[2], 3) == tokens


def test_technical_reports_trace() -> None:
    trace = real("mooncake-report")
    assert trace.requests == 23_608
    found = [hits(trace, "lru", size) / trace.blocks for size in (*SIZES, trace.distinct_blocks)]
    assert found == pytest.approx([0.341, 0.460, 0.537, 0.551, 0.552, 0.553], abs=0.001)


def test_weka() -> None:
    trace = real("weka")
    assert (trace.requests, trace.sessions, trace.blocks) == (46_218, 692, 85_405_325)
    assert round(trace.infinite_hit_blocks / trace.blocks, 5) == 0.96258
    assert trace.input_tokens.sum() == 5_467_403_989
    assert trace.unblocked_tokens.sum() == 1_463_189
    assert any(note.startswith("18 sessions repeat") for note in trace.notes)


@pytest.mark.slow
def test_weka_ids_have_one_parent_each() -> None:
    real("weka")
    source = registry.raw_folder() / registry.registry()["weka"].archive.path  # type: ignore[union-attr]
    decode = msgspec.json.Decoder(Session).decode
    ids = BlockIds()
    files = distinct = 0
    for name, _, text in documents(source, None):
        files += 1
        seen = np.zeros(1, dtype=bool)
        for request in calls(decode(text).requests):
            chain, _ = ids.parse([request.hash_ids], [name])
            if len(chain):
                seen = np.pad(seen, (0, max(0, chain.max() + 1 - len(seen))))
                seen[chain] = True
        distinct += int(seen.sum())
    assert files == 710
    assert distinct == readers.read(source, keep_repeats=True).distinct_blocks


def calls(requests: list[Request]) -> list[Request]:
    """Return the model calls of a session, sub-agents flattened."""
    nested = [calls(request.requests) if request.requests else [request] for request in requests]
    return [request for part in nested for request in part if request.type != "subagent"]


@pytest.mark.parametrize("name", ["conversation", "synthetic", "weka"])
def test_belady_beats_lru_and_the_optimum_beats_both(name: str) -> None:
    trace = arrange(real(name), 0)
    curve = lru_curve(trace)
    spaced = np.geomspace(21, trace.distinct_blocks, 48).astype(int)
    for capacity in (*range(1, 21), *spaced.tolist()):
        lru, belady = int(curve[capacity]), hits(trace, "belady", capacity)
        assert lru <= belady <= hits(trace, "opt", capacity) <= trace.infinite_hit_blocks


@pytest.mark.parametrize("name", ["conversation", "synthetic", "weka"])
def test_curve_equals_the_engine(name: str) -> None:
    trace = arrange(real(name), 0)
    stop = float(trace.arrival[-1])
    for part, ttl in ((trace, None), (trace, 300.0), (cut(trace, stop / 4, stop / 2), 60.0)):
        curve = lru_curve(part, ttl)
        for capacity in np.geomspace(1, part.distinct_blocks, 12).astype(int).tolist():
            result = replay(part, POLICIES["lru"], capacity, ttl=ttl)
            assert result.hit_blocks.sum() == curve[capacity]
