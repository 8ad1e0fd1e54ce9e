"""Averages over seeds, capacities and traces, and the ranks of policies, in one order everywhere.

A trace with five seeds is one trace, and a capacity with five seeds is one capacity: means go over
seeds first, then over capacities, then over traces, so that each trace counts once. A
*point* is a trace and capacity, its value the mean over seeds; a *cell* is one run.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

LEVELS = ("seed", "capacity", "trace")
POINT = ("trace", "capacity")


def mean_over(
    cells: pd.DataFrame, values: Sequence[str], by: Sequence[str] = ("policy",)
) -> pd.DataFrame:
    """Return means over seeds, then capacities, then traces.

    Parameters
    ----------
    cells : DataFrame
        A row a run: columns `values`, `by` and those of ``seed``, ``capacity`` and ``trace`` that
        there are.
    values : sequence of str
        Columns to average; missing values are left out.
    by : sequence of str
        What the means are kept apart by; a level among them is not averaged over.

    Returns
    -------
    DataFrame
        Index `by`, in sorted order; columns `values`.
    """
    levels = [level for level in LEVELS if level in cells and level not in by]
    means = cells
    for place in range(len(levels)):
        kept = [*by, *levels[place + 1 :]]
        means = means.groupby(kept, as_index=False)[list(values)].mean()
    return means.groupby(list(by))[list(values)].mean()


@dataclass(frozen=True)
class Coverage:
    """What a statistic counts, for the caption beside it.

    Attributes
    ----------
    traces, points, cells : int
        Traces; pairs of trace and capacity; runs a policy.
    seeds : (int, int)
        Fewest and most seeds a trace.
    policies : int
        Policies that have every cell.
    left_out : tuple of str
        Policies that lack cells.
    """

    traces: int
    points: int
    cells: int
    seeds: tuple[int, int]
    policies: int
    left_out: tuple[str, ...]

    def words(self) -> str:
        """Return the counts as the captions print them."""
        low, high = self.seeds
        seeds = f"{low}" if low == high else f"{low} to {high}"
        without = f"; without {', '.join(self.left_out)}" if self.left_out else ""
        return (
            f"{self.policies} policies, {self.traces} traces, {self.points} points "
            f"({self.cells} runs a policy, {seeds} seeds a trace){without}"
        )


def complete(cells: pd.DataFrame) -> tuple[pd.DataFrame, Coverage]:
    """Return the cells of the policies that have every cell, and what that covers.

    A policy with holes is left out, never a cell: otherwise one policy that ran on one trace would
    silently reduce the comparison of all others to that trace.

    Parameters
    ----------
    cells : DataFrame
        A row a run: columns `policy`, `capacity`, `seed` and, where there are several, `trace`.
    """
    key = [level for level in LEVELS if level in cells]
    every = len(cells.drop_duplicates(key))
    runs = cells.drop_duplicates([*key, "policy"]).groupby("policy", sort=False).size()
    left_out = tuple(map(str, runs.index[runs < every]))
    kept = cells[~cells["policy"].isin(left_out)]
    named = kept if "trace" in kept else kept.assign(trace="")
    seeds = named.groupby("trace")["seed"].nunique()
    coverage = Coverage(
        traces=named["trace"].nunique(),
        points=len(named.drop_duplicates(list(POINT))),
        cells=len(named.drop_duplicates([*POINT, "seed"])),
        seeds=(int(seeds.min()), int(seeds.max())) if len(seeds) else (0, 0),
        policies=kept["policy"].nunique(),
        left_out=left_out,
    )
    return kept, coverage


def mean_ranks(cells: pd.DataFrame, value: str, level: float = 0.05) -> tuple[pd.Series, float]:
    """Return the mean rank of each policy, 1 the best, and Nemenyi's critical difference.

    Policies are ranked at each point by their mean over seeds; ranks are averaged over capacities,
    then traces. The difference (Demsar, J. Mach. Learn. Res. 7, 2006) takes points as independent;
    those of one trace are not, so that it is too small.

    Parameters
    ----------
    cells : DataFrame
        As `complete` returns it, with a column `trace`.
    value : str
        Column to rank by, the larger the better.
    level : float
        Of the test.

    Raises
    ------
    ValueError
        If a policy lacks a point.
    """
    wide = mean_over(cells, [value], by=("policy", *POINT))[value].unstack("policy")
    holes = wide.columns[wide.isna().any()]
    if len(holes):
        raise ValueError(f"ranks need every policy at every point; {', '.join(holes)} lack some")
    ranks = wide.rank(axis=1, ascending=False).melt(ignore_index=False, value_name="rank")
    mean = mean_over(ranks.reset_index(), ["rank"])["rank"].sort_values(kind="stable")
    policies = wide.shape[1]
    from scipy.stats import studentized_range  # an extra: only ranks need it

    quantile = studentized_range.ppf(1 - level, policies, np.inf) / np.sqrt(2)
    return mean, float(quantile * np.sqrt(policies * (policies + 1) / (6 * len(wide))))
