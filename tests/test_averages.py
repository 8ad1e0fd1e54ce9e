import pandas as pd
import pytest

from kvsim.analysis.averages import complete, mean_over, mean_ranks
from kvsim.experiments import compare
from kvsim.report.results import load_table

# Trace a has two seeds and one capacity, trace b one seed and two capacities.
ROWS = [
    *[("a", 10, seed, policy, ratio) for seed in (0, 1) for policy, ratio in (("x", 8), ("y", 6))],
    *[("b", size, 0, policy, ratio) for size in (5, 9) for policy, ratio in (("x", 1), ("y", 2))],
]
CELLS = pd.DataFrame(ROWS, columns=["trace", "capacity", "seed", "policy", "ratio"])


def test_each_trace_counts_once_however_many_seeds_it_has():
    means = mean_over(CELLS, ["ratio"])["ratio"]
    assert means.to_dict() == {"x": (8 + 1) / 2, "y": (6 + 2) / 2}
    assert CELLS.groupby("policy")["ratio"].mean()["x"] == 4.5  # here by luck the same ...
    thrice = pd.concat([CELLS, CELLS[CELLS["trace"] == "a"].assign(seed=2)])
    assert mean_over(thrice, ["ratio"])["ratio"].to_dict() == means.to_dict()  # ... not by rule
    assert thrice.groupby("policy")["ratio"].mean()["x"] != 4.5


def test_seeds_come_before_capacities():
    # At capacity 1 three seeds, at capacity 2 one.
    rows = [("a", 1, seed, "x", 3.0) for seed in range(3)] + [("a", 2, 0, "x", 5.0)]
    cells = pd.DataFrame(rows, columns=CELLS.columns)
    assert mean_over(cells, ["ratio"])["ratio"]["x"] == 4.0


def test_what_is_kept_apart_is_not_averaged():
    means = mean_over(CELLS, ["ratio"], by=("policy", "trace"))["ratio"]
    assert means.to_dict() == {("x", "a"): 8, ("x", "b"): 1, ("y", "a"): 6, ("y", "b"): 2}


def test_policies_with_holes_go_before_cells_with_holes():
    holes = pd.concat([CELLS, pd.DataFrame([("b", 5, 0, "z", 9)], columns=CELLS.columns)])
    kept, coverage = complete(holes)
    assert sorted(kept["policy"].unique()) == ["x", "y"]
    assert len(kept) == len(CELLS)
    assert coverage.left_out == ("z",)
    assert (coverage.traces, coverage.points, coverage.cells) == (2, 3, 4)
    assert coverage.seeds == (1, 2)
    words = coverage.words()
    for shown in ("2 policies", "2 traces", "3 points", "4 runs", "1 to 2 seeds", "without z"):
        assert shown in words
    with pytest.raises(ValueError, match="z lack"):
        mean_ranks(holes, "ratio")


def test_a_hole_in_one_seed_is_a_hole():
    lacking = CELLS[~((CELLS["policy"] == "y") & (CELLS["seed"] == 1))]
    assert complete(lacking)[1].left_out == ("y",)


def test_ranks_by_hand():
    ranks, _ = mean_ranks(CELLS, "ratio")
    # x is first on trace a and second at both capacities of b.
    assert ranks.to_dict() == {"x": 1.5, "y": 1.5}
    tied = CELLS.assign(ratio=1)
    assert mean_ranks(tied, "ratio")[0].tolist() == [1.5, 1.5]


def test_critical_difference_by_the_published_table():
    # Demsar (2006), table 5: q = 2.343 for 3 classifiers at 5 %.
    cells = pd.concat([CELLS, CELLS[CELLS["policy"] == "x"].assign(policy="z")])
    _, difference = mean_ranks(cells, "ratio")
    assert difference == pytest.approx(2.343 * (3 * 4 / (6 * 3)) ** 0.5, abs=1e-3)


def test_ranks_count_every_cell_that_there_is():
    cells = load_table("compare", "cells")
    ranks = compare.mean_ranks(cells)
    coverage = ranks.coverage
    assert coverage.cells == len(cells.drop_duplicates(["trace", "capacity", "seed"]))
    assert coverage.points == len(cells.drop_duplicates(["trace", "capacity"]))
    assert coverage.traces == cells["trace"].nunique()
    named = {*ranks.table.index, *coverage.left_out}
    assert named == {"lru", *compare.online(cells)["policy"]}
    # A mean rank over so many policies cannot come from a few points alone.
    assert ranks.table["mean rank"].sum() == pytest.approx(
        len(ranks.table) * (len(ranks.table) + 1) / 2, abs=0.3
    )


def test_wins_ties_and_losses_count_points():
    cells = load_table("compare", "cells")
    table = compare.against_lru(cells)
    points = len(cells.drop_duplicates(["trace", "capacity"]))
    counted = table[["won", "tied", "lost"]].sum(axis=1)
    left_out = complete(cells)[1].left_out
    assert (counted.drop(list(left_out)) == points).all()
    assert (counted[list(left_out)] < points).all()
    assert (table["points"] == counted).all()
