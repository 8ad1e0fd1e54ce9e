"""Compression and the provider's case: small traces followed on paper, and the experiments."""

from itertools import pairwise
from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd
import pytest

from kvsim.analysis.compression import compression
from kvsim.analysis.provider import (
    FIVE_MINUTES,
    ONE_HOUR,
    Prices,
    bill,
    keep_alive,
    silence,
    with_pings,
)
from kvsim.cache.costs import CostModel
from kvsim.cache.curves import lru_curve
from kvsim.cache.reference import Request
from kvsim.experiments import compression as compression_study
from kvsim.experiments import provider as provider_study
from kvsim.experiments.store import Experiment
from kvsim.report import levers
from kvsim.traces.opening import open_trace
from kvsim.traces.trace import Trace, TraceError
from tests.strategies import to_trace

A_FLOP_A_TOKEN = CostModel("one", parameters=0.5, layers=0, width=0)


@pytest.fixture(scope="module")
def sample() -> Trace:
    return open_trace("sample")


def test_compression_by_hand() -> None:
    # A, B, A, B, A with blocks of 4 tokens. Before the second A the stack is 9 8 1 2 3, before the
    # second B it is 1 2 3 9 8, before the third A again 9 8 1 2 3. So an A hits 0, 2, 3 blocks with
    # room for 2, 4, 5, the B 0, 1, 2: 0, 5, 8 of the 13 asked for; 8, 3, 0 are recomputed.
    a, b = (1, 2, 3), (9, 8)
    chains = (a, b, a, b, a)
    trace = to_trace([Request(float(i), chain, 4 * len(chain)) for i, chain in enumerate(chains)])
    table = compression(trace, ["2"], (1, 2, 3), A_FLOP_A_TOKEN)
    assert table["capacity"].tolist() == [2, 4, 5]  # three times 2 is more than there are
    assert table["hit_blocks"].tolist() == [0, 5, 8]
    assert table["recompute_flops"].tolist() == [32, 12, 0]
    assert table["hit_points"].tolist()[1:] == pytest.approx([500 / 13, 300 / 13])
    assert table["saved_share"].tolist()[1:] == [20 / 32, 12 / 32]
    # Per unit of ratio: from 1 to 3 in one step is half of the whole a unit.
    assert compression(trace, ["2"], (1, 3), A_FLOP_A_TOKEN)["saved_share"].iloc[1] == 0.5


@pytest.mark.parametrize("ratios", [(), (2, 3), (1, 1, 2), (1, 3, 2)])
def test_ratios_must_ascend_from_one(sample: Trace, ratios: tuple[int, ...]) -> None:
    with pytest.raises(TraceError, match="must ascend from 1"):
        compression(sample, ["1%"], ratios)


def test_compression_reads_the_exact_curve(sample: Trace) -> None:
    table = compression(sample, ["1%"], (1, 2, 4))
    hits = lru_curve(sample)
    assert table["hit_blocks"].tolist() == hits[table["capacity"]].tolist()
    assert all(less > more for less, more in pairwise(table["recompute_flops"]))


def session() -> Trace:
    # 8 tokens and 1 without a block; 12 tokens 100 s later; the same after 900 s of silence.
    rows = ((0.0, (1, 2), 9), (100.0, (1, 2, 3), 12), (1000.0, (1, 2, 3), 12))
    return to_trace([Request(*row, session=0) for row in rows])


def test_bill_by_hand() -> None:
    # 8 written, 1 plain; 8 read, 4 written; expired, so 12 written:
    # 0.1 * 8 + 1.25 * 24 + 1 = 31.8 instead of 33.
    paid = bill(session(), FIVE_MINUTES)
    assert [paid[f"{kind}_tokens"] for kind in ("read", "written", "plain")] == [8, 24, 1]
    assert paid["price"] == pytest.approx(31.8)
    assert paid["without_cache"] == 33
    assert paid["saved_share"] == pytest.approx(1.2 / 33)
    assert paid["hit_ratio"] == 2 / 8
    # In an hour nothing expires: 8 + 12 read, 12 written at twice the price.
    assert bill(session(), ONE_HOUR)["price"] == pytest.approx(2 + 24 + 1)


def test_keep_alive_by_hand() -> None:
    # Pings every 200 s. In the silence of 900 s they go out at 300, 500, 700 and 900, and the
    # return at 1000 finds the prompt if the third was sent (touched exactly 300 s ago). After the
    # last request all are sent. A ping reads 12 tokens, 1.2; a return that finds them saves
    # 1.15 * 12.
    table = keep_alive(session(), FIVE_MINUTES, most=6, margin=100.0)
    assert silence(session()).tolist() == [100, 900, float("inf")]
    assert table["sent"].tolist() == [0, 2, 4, 6, 8, 9, 10]
    expected = [31.8, 34.2, 36.6, 31.8 + 7.2 - 13.8, 27.6, 28.8, 30.0]
    assert table["price"].tolist() == pytest.approx(expected)
    # Half of the tokens that sleep return in 900 s: k pings pay by the rule where
    # 0.1 k < 1.15 * 0.5.
    assert table["returned"].tolist() == [0, 0, 0, 0.5, 0.5, 0.5, 0.5]
    assert table["rule"].tolist() == [False, False, False, True, True, True, False]
    assert FIVE_MINUTES.most_pings == pytest.approx(11.5)
    assert ONE_HOUR.most_pings == pytest.approx(19)


def test_pings_keep_what_they_ask_for(sample: Trace) -> None:
    table = keep_alive(sample, FIVE_MINUTES, most=3)
    plain = bill(sample, FIVE_MINUTES)
    assert table["price"].iloc[0] == plain["price"]
    assert all(less > more for less, more in pairwise(table["written_tokens"]))
    asked = with_pings(sample, 300.0, 3).input_tokens.sum()
    last = table.iloc[-1]
    assert last["read_tokens"] + last["written_tokens"] + plain["plain_tokens"] == asked


def test_what_makes_no_sense_is_refused(sample: Trace) -> None:
    with pytest.raises(TraceError, match="no sessions"):
        with_pings(to_trace([Request(0.0, (1,), 4)]), 300.0, 1)
    with pytest.raises(TraceError, match=r"margin is 300\.0 s"):
        with_pings(sample, 300.0, 1, margin=300.0)
    with pytest.raises(TraceError, match="prices mine: read is -1"):
        Prices("mine", 300.0, 1.0, -1)


FAST = {
    "compression": {"shares": ("1%", "inf"), "ratios": (1, 2, 4, 8)},
    "provider": {"prices": (FIVE_MINUTES,)},
}
TRACES = {
    "sample": lambda: open_trace("sample", window=None),
    "no sessions": lambda: to_trace([Request(40.0 * i, (1, 2, 10 + i % 3), 12) for i in range(12)]),
}


@pytest.mark.parametrize("name", TRACES)
def test_experiments_store_tables_that_texts_and_figures_take(name: str, tmp_path: Path) -> None:
    trace = TRACES[name]()
    found = {}
    for study in (compression_study.EXPERIMENT, provider_study.EXPERIMENT):
        chosen = Experiment(
            study.number,
            study.name,
            study.title,
            study.tables,
            study.text,
            parameters={None: FAST[study.name]},
        )
        chosen.run(trace, tmp_path)
        (found[study.name],) = chosen.stored(tmp_path).values()
        assert study.text(trace.name, found[study.name])
    cells = found["compression"]["cells"].assign(trace=name)
    assert compression_study.worth(cells).loc[(name, "inf"), "points 8x"] == 0
    pings = found["provider"]["pings"].assign(trace=name)
    drawn = [levers.gain_by_compression(cells)]
    if name == "sample":
        top = provider_study.best(pings).iloc[0]
        assert top["saved_share"] == pings["saved_share"].max()
        assert 0 < top["pings"] <= top["most"]
        drawn.append(levers.keep_alive(pings))
        assert [len(axis.lines) for axis in drawn[-1].axes] == [2]
    else:
        assert "no data" in provider_study.text(name, found["provider"])
    assert len(drawn[0].axes[0].lines) == 2
    for figure in drawn:
        plt.close(figure)


def test_no_flops_to_save_is_no_share() -> None:
    trace = TRACES["no sessions"]()
    table = compression(trace, ["inf"], (1, 2))
    assert table["recompute_flops"].tolist() == [0, 0]
    assert pd.isna(table["saved_share"]).all()


def test_memory_stands_on_top_of_blocks() -> None:
    figure, axis = plt.subplots()
    axis.set(xscale="log", xlim=(128, 128_000))
    levers.add_memory_axis(axis, 64, "llama-3.1-8b")
    figure.canvas.draw()
    (top,) = axis.child_axes
    # A block of 64 tokens is 8 MiB, so 128 of them are a GiB.
    assert top.get_xlim() == pytest.approx((1, 1000))
    assert "llama-3.1-8b in bf16" in top.get_xlabel()
    plt.close(figure)
