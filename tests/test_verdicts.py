import pandas as pd
import pytest

from kvsim.analysis import regimes
from kvsim.cache.policies import POLICIES
from kvsim.experiments import (
    belady,
    characterize,
    compare,
    gap,
    liveness,
    store,
    validate,
    verdicts,
)
from kvsim.report.results import load_provenance, load_table
from kvsim.traces.opening import open_trace


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
    table = verdicts.of_trace(open_trace("sample", window=None), ["1%", "100%"], 300)
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


def modes(*p_values):
    rows = [
        {"trace": "t", "quantity": "gap_s", "modes": k, "p_value": p, "values": 1_000}
        for k, p in enumerate(p_values, 1)
    ]
    return pd.DataFrame(rows).assign(smallest_peak=0.02, deepest_valley=0.9)


def test_modes_are_told_as_the_test_decides():
    rejecting = characterize.mode_words(modes(0.01, 0.002))
    assert rejecting["t_gap_s_modes"] == "rejects every number up to 2"
    assert rejecting["t_gap_s_p"] == "0.01"
    assert rejecting["t_gap_s_second"] == "2.0 %"
    assert characterize.mode_words(modes(0.01, 0.2))["t_gap_s_modes"] == "does not reject 2"


def test_flat_and_leaf_differ_by_the_most_over_capacities():
    rows = [("t", "lru, leaf", size, ratio) for size, ratio in ((1, 0.3), (2, 0.5))]
    rows += [
        ("t", "lru, flat (root oldest)", size, ratio) for size, ratio in ((1, 0.298), (2, 0.5))
    ]
    rates = pd.DataFrame(rows, columns=["trace", "policy", "capacity", "hit_ratio"])
    assert validate.flat_words(rates) == {"flat_most": "0.20 (t)"}


def test_properties_that_change_nothing_are_said_to():
    rows = [
        ("t", policy, 10, slip, 5 + (slip == "no pin") + (slip == "flat" and policy == "fifo"))
        for policy in ("lru", "fifo")
        for slip in ("none", *belady.PROPERTIES)
    ]
    slips = pd.DataFrame(rows, columns=["trace", "policy", "capacity", "slip", "hit_blocks"])
    told = belady.property_words(slips)
    assert told["set_hits_changes"] == "0 of 2"
    assert told["set_hits_policies"] == "none"
    assert (told["flat_changes"], told["flat_policies"]) == ("1 of 2", "fifo")
    assert told["no_pin_changes"] == "2 of 2"


def test_captions_take_window_and_seeds_from_the_experiment():
    told = store.setup_words(compare.EXPERIMENT, belady.EXPERIMENT)
    assert told == {
        "committed_window": "8 hours",
        "committed_seeds": "0 to 4",
        "committed_seed": "0",
    }


def test_stretches_are_of_neighbouring_capacities():
    names = [regimes.MILDLY, regimes.HEAVILY, regimes.HEAVILY, regimes.MILDLY, regimes.COMPULSORY]
    facts = {"trace": "t", "capacity": [1, 2, 3, 4, 5_000], verdicts.WITHOUT: names}
    table = pd.DataFrame(facts | {verdicts.WITH: names}).set_index(["trace", "capacity"])
    shown = verdicts.stretches(table)["without a TTL"]
    assert shown["t", regimes.MILDLY] == "1; 4"
    assert shown["t", regimes.HEAVILY] == "2 to 3"
    assert shown["t", regimes.COMPULSORY] == "5,000"


def test_wins_against_lru_by_hand():
    rows = [
        ("a", 1, seed, policy, gain)
        for seed in range(5)
        for policy, gain in (("lru", 0.0), ("fifo", 1.0 if seed else -0.5))
    ]
    rows += [("b", 1, 0, "lru", 0.0), ("b", 1, 0, "fifo", -2.0)]
    cells = pd.DataFrame(rows, columns=["trace", "capacity", "seed", "policy", "gain_pp"])
    row = compare.against_lru(cells).loc["fifo"]
    assert (row["won"], row["tied"], row["lost"], row["points"]) == (1, 0, 1, 2)
    assert row["mean_gain_pp"] == pytest.approx((0.7 - 2.0) / 2)
    assert (row["worst_pp"], row["best_pp"]) == (-2.0, 1.0)
