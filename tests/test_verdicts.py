import pandas as pd
import pytest

from kvsim.analysis import regimes
from kvsim.cache.policies import POLICIES
from kvsim.experiments import belady, compare, gap, liveness, verdicts
from kvsim.experiments.store import load_provenance, load_table
from kvsim.traces.fetch import open_trace


@pytest.fixture(scope="module")
def standing():
    return verdicts.committed()


def test_both_regimes_follow_the_rule(standing):
    infinite = standing.groupby("trace")["lru"].transform("max")
    for (_, facts), best in zip(standing.iterrows(), infinite, strict=True):
        apart = facts["opt"] - facts["lru"]
        without, with_ttl = facts[verdicts.WITHOUT], facts[verdicts.WITH]
        assert without != regimes.TTL
        assert with_ttl in {without, regimes.TTL}
        assert (with_ttl == regimes.TTL) == (facts["removed by the TTL"] > regimes.MOST)
        if without == regimes.MILDLY:
            assert apart < regimes.MILD + 1e-4
        if without == regimes.HEAVILY:
            assert apart > regimes.MILD - 1e-4
        if without == regimes.COMPULSORY:
            assert best - facts["lru"] < regimes.NEAR + 1e-4


def test_a_server_without_a_ttl_finds_every_regime_but_that(standing):
    assert set(standing[verdicts.WITHOUT]) == set(regimes.REGIMES) - {regimes.TTL}
    assert set(standing[verdicts.WITH]) >= {regimes.TTL, regimes.HEAVILY}
    table = verdicts.stretches(standing)
    assert list(table.columns) == ["without a TTL", "with the TTL"]


def test_of_a_trace_live():
    table = verdicts.of_trace(open_trace("sample"), ["1%", "100%"], 300)
    assert table.loc[218_202, verdicts.WITHOUT] == regimes.COMPULSORY
    assert table.loc[218_202, verdicts.WITH] == regimes.TTL


def test_advice_carries_evidence_or_says_that_there_is_none():
    advice = verdicts.advice().reset_index()
    assert set(advice["regime"]) == set(regimes.REGIMES)
    assert advice["how to tell"].tolist() == [regimes.describe()[name] for name in advice["regime"]]
    measured = advice["evidence"] != verdicts.NOT_MEASURED
    assert (advice.loc[measured, "points"].str.len() > 0).all()
    assert (advice.loc[~measured, "points"] == "").all()
    assert advice.loc[measured, "evidence"].str.contains(r"\d+ points of \d traces?").all()
    praised = advice[advice["lever"].str.contains("liveness")]
    assert praised["lever"].str.contains("made on these traces").all()


def test_points_of_the_advice_are_those_of_the_comparison():
    advice = verdicts.advice().reset_index()
    of_optimum = advice[advice["lever"].str.contains("any policy, at most")]
    counted = of_optimum["evidence"].str.extract(r"(\d+) points")[0].astype(int).sum()
    cells = load_table("compare", "cells")
    assert counted == len(cells.drop_duplicates(["trace", "capacity"]))


def test_claims_are_answered_from_results():
    claims = verdicts.claims()
    assert claims["our figure"].str.len().gt(0).all()
    told = compare.headline(load_table("compare", "cells"))
    shown = claims.loc["LRU is hard to beat", "our figure"]
    assert f"{told['lose_more']} of {told['online']}" in shown
    assert f"of {len(POLICIES)} policies" in claims.loc["Objection: references are missing"].iloc[0]


def test_slips_are_counted_by_run_and_by_outcome():
    slips = load_table("belady", "slips")
    counts = belady.slip_counts(slips)
    own = slips[(slips["policy"] == "belady") & (slips["slip"] != "none")]
    outcome = ["trace", "capacity", "hit_ratio"]
    assert counts["slip_runs"] == len(own)
    assert counts["slip_runs_distinct"] == len(own.drop_duplicates(outcome))
    merged = belady.effects_by_trace(slips)
    assert not merged.duplicated([*outcome, "caught"]).any()
    assert merged["slips"].sum() == len(own)
    unseen = belady.unseen(slips, count=1000)
    assert unseen["slips"].sum() == counts["slip_unseen"]
    assert (unseen["lead_over_lru_pp"] >= 0).all()


def test_captions_say_what_the_slips_ran_on():
    provenance = load_provenance("belady")
    told = belady.slip_setups(provenance)
    for trace, facts in provenance.items():
        part = next(part for part in told.split(", ") if part.endswith(f" of {trace}"))
        number = facts["parameters"].get("slip_sessions") or facts["parameters"]["slip_requests"]
        assert f"{number:,} " in f"{part} "


def test_contrast_names_only_the_traces_that_are_close():
    told = gap.near_published(load_table("gap", "contrast"))
    assert "weka" in str(told["contrast_close"])
    assert "conversation" in str(told["contrast_far"])
    assert "conversation" not in str(told["contrast_close"])


def test_goals_count_capacities_once_however_many_seeds():
    cells = load_table("liveness", "cells")
    once, thrice = cells, pd.concat([cells, cells.assign(seed=cells["seed"] + 100)])
    counted = [name for name in liveness.goals(once) if "pressed" in name or "closed" in name]
    assert liveness.goals(once)[counted].equals(liveness.goals(thrice)[counted])
