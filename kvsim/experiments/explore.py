"""The explorer's numbers: of the committed results, or measured on one trace."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pandas as pd

from kvsim.cache.curves import lru_curve
from kvsim.cache.sweep import run
from kvsim.experiments import regimemap
from kvsim.report.results import RESULTS, load_table
from kvsim.traces.arrivals import arrange
from kvsim.traces.durations import parse_duration
from kvsim.traces.trace import SESSION, Trace, TraceError

POLICIES = ("liveness", "lhd", "lirs", "arc", "s3-fifo", "fifo", "lfu")
OF_LRU = ("trace", "seed", "capacity", "lru_ratio")


def committed(results: Path = RESULTS) -> dict[str, pd.DataFrame]:
    """Return the tables that `kvsim.report.explorer.data` takes, from stored results.

    Policies come from the comparison, LRU, OPT and the TTLs from the map of regimes; LRU's curve,
    for what a policy is worth in memory, from these and from the runs of liveness.
    """
    cells = load_table("compare", "cells", results)
    regimes = load_table("regimes", "cells", results)
    liveness = load_table("liveness", "cells", results)
    grid = pd.MultiIndex.from_frame(regimes[["trace", "capacity"]].drop_duplicates())
    cells = cells[pd.MultiIndex.from_frame(cells[["trace", "capacity"]]).isin(grid)]
    cells = cells[cells["trace"].isin(regimes["trace"]) & ~cells["policy"].isin(["lru", "opt"])]
    curve = pd.concat([regimes[list(OF_LRU)], liveness[list(OF_LRU)]]).drop_duplicates(OF_LRU[:3])
    distinct = regimes.groupby("trace")["capacity"].max()
    seeds = regimes.groupby("trace")["seed"].nunique()
    facts = pd.DataFrame({"distinct_blocks": distinct, "window": "8h"}).rename_axis("trace")
    facts.loc[seeds == 1, "window"] = ""  # its own arrivals
    facts["opened"] = facts.index
    return {
        "cells": cells[["trace", "policy", "capacity", "seed", "hit_ratio"]],
        "regimes": regimes,
        "curve": curve,
        "facts": facts.sort_values("distinct_blocks", ascending=False).reset_index(),
    }


def measured(
    trace: Trace,
    opened: str,
    policies: Sequence[str] = POLICIES,
    window: str = "8h",
    seeds: Sequence[int] = (0,),
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, pd.DataFrame]:
    """Return the same tables, measured on a trace.

    Parameters
    ----------
    trace : Trace
        The requests; sessions are not yet interleaved.
    opened : str
        What the command line calls the trace, with its options.
    policies : sequence of str
        Beside LRU, which has every TTL, and OPT.
    window : str
        In which sessions start, as the command line takes it.
    seeds : sequence of int
        Of the session starts; only the first counts where the trace has no sessions.
    progress : callable, optional
        Told (runs ready, runs in all) of the policies.

    Raises
    ------
    TraceError
        If the trace has no blocks.
    """
    name = trace.name
    if not trace.blocks:
        raise TraceError(f"{name}: no request has a block, so there is nothing to explore")
    used = seeds if trace.clock == SESSION else seeds[:1]
    length = parse_duration(window)
    regimes = regimemap.tables(trace, window=length, seeds=used)["cells"].assign(trace=name)
    sizes = sorted(regimes["capacity"].unique().tolist())
    others = [policy for policy in policies if policy not in ("lru", "opt")]
    cells = run(trace, others, sizes, window=length, seeds=used, progress=progress)
    curves = [
        pd.DataFrame({"seed": seed, "lru_ratio": lru_curve(arrange(trace, length, seed))[1:]})
        for seed in used
    ]
    curve = pd.concat([curve.assign(capacity=curve.index + 1) for curve in curves])
    facts = {
        "trace": name,
        "distinct_blocks": trace.distinct_blocks,
        "opened": opened,
        "window": window if trace.clock == SESSION else "",
    }
    return {
        "cells": cells[["policy", "capacity", "seed", "hit_ratio"]].assign(trace=name),
        "regimes": regimes,
        "curve": curve.assign(trace=name, lru_ratio=curve["lru_ratio"] / trace.blocks),
        "facts": pd.DataFrame([facts]),
    }
