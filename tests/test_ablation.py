import numpy as np
import pytest

from kvsim.experiments import ablation
from kvsim.report import published
from kvsim.report.results import Tables
from kvsim.traces.opening import open_trace
from kvsim.traces.trace import Trace


@pytest.fixture(scope="module")
def trace() -> Trace:
    whole = open_trace("sample", window=None)
    return whole.select(whole.session < 10)


@pytest.fixture(scope="module")
def tables(trace: Trace) -> Tables:
    return ablation.tables(trace, points=3, sample=4, seeds=(0, 1), varied_at=(2_000,))


def test_every_cell_is_there_once(tables: Tables) -> None:
    cells = tables["cells"]
    assert not cells.duplicated(["sample", "seed", "policy", "capacity"]).any()
    assert set(cells["policy"]) == set(ablation.POLICIES)
    assert cells.groupby("sample")["seed"].nunique().to_dict() == {
        "4 sessions": 2,
        "all sessions": 1,
    }


def test_gains_are_over_lru_and_the_optimum_is_the_most(tables: Tables) -> None:
    cells = tables["cells"]
    lru = cells[cells["policy"] == "lru"]
    assert (lru["hit_gain"] == 0).all()
    assert (lru["prefill_saving"] == 0).all()
    keys = ["sample", "seed", "capacity"]
    optimum = cells[cells["policy"] == "opt"].set_index(keys)["hit_ratio"]
    best = cells.groupby(keys)["hit_ratio"].max()
    assert (optimum.loc[best.index] >= best).all()


def test_savings_follow_from_the_costs(tables: Tables) -> None:
    cells = tables["cells"]
    lru = cells[cells["policy"] == "lru"].set_index(["sample", "seed", "capacity"])
    h = cells[cells["policy"] == "h"].set_index(["sample", "seed", "capacity"])
    saved = 1 - h["prefill_pflop"] / lru["prefill_pflop"]
    np.testing.assert_allclose(h["prefill_saving"], saved, atol=1e-5)


def test_a_cache_of_everything_recomputes_nothing(tables: Tables, trace: Trace) -> None:
    cells = tables["cells"]
    largest = cells[(cells["sample"] == ablation.ALL) & (cells["policy"] == "lru")].iloc[-1]
    assert largest["capacity"] == trace.distinct_blocks
    assert largest["recompute_pflop"] == 0
    assert np.isnan(largest["recompute_saving"])


def test_varied_tables_hold_the_default_run(tables: Tables) -> None:
    h = tables["sensitivity"].query("policy == 'h' and default")
    assert len(h) == 4  # one a parameter
    assert h["hit_ratio"].nunique() == 1
    everyone = tables["candidates"].query("policy == 'h' and candidates == 0")
    assert everyone["hit_ratio"].tolist() == h["hit_ratio"].unique().tolist()


def test_spread_by_hand(tables: Tables) -> None:
    one = tables["cells"].query("sample == '4 sessions' and policy == 'hc' and capacity == 1000")
    row = (
        ablation.spread(tables["cells"])
        .query("sample == '4 sessions' and policy == 'hc' and capacity == 1000")
        .iloc[0]
    )
    low, high = sorted(one["hit_ratio"])
    assert row["seeds"] == 2
    assert row["hit_ratio"] == pytest.approx((low + high) / 2)
    assert row["hit_ratio_sd"] == pytest.approx((high - low) / 2**0.5)
    assert (row["hit_ratio_min"], row["hit_ratio_max"]) == (low, high)


def test_the_study_stands_beside_ours(tables: Tables) -> None:
    both = ablation.beside_study(tables["cells"])
    lfu = both[(both["policy"] == "lfu") & (both["capacity"] == 8_000)].iloc[0]
    assert lfu["study_hit_gain"] == pytest.approx(0.6361 - 0.8348)
    # Misses 36.39 % against 16.52 %.
    assert lfu["study_saving_by_hits"] == pytest.approx(1 - 0.3639 / 0.1652)
    assert lfu["sample"] == "4 sessions"
    assert both.loc[both["policy"] == "lru", "same_cost_sign"].isna().all()


def test_text_shows_everything(tables: Tables) -> None:
    text = ablation.text("sample", tables)
    for shown in ("Llama 3 70B", "4 sessions", "The study's ablation", "doubling", "deepest"):
        assert shown in text


def test_study_prints_no_cost_for_lru_and_ttl() -> None:
    table = published.study_ablation()
    assert set(table.loc[table["saving"].isna(), "policy"]) == {"lru", "ttl-300"}
    assert len(table) == 18
