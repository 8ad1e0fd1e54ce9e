"""The committed results, as they are read: tables and where they come from."""

import json
import os
from pathlib import Path
from typing import Any

import pandas as pd

from kvsim.traces.trace import TraceError

FOLDER = "KVSIM_RESULTS"  # environment variable: results other than the committed ones
RESULTS = Path(os.environ.get(FOLDER) or Path(__file__).resolve().parents[2] / "results")

Tables = dict[str, pd.DataFrame]


def load_tables(trace: str, experiment: str, results: Path = RESULTS) -> Tables:
    """Return the stored tables of one trace and experiment.

    Raises
    ------
    TraceError
        If nothing is stored.
    """
    prefix = f"{experiment}-"
    tables = {
        path.stem.removeprefix(prefix): pd.read_csv(path)
        for path in sorted((results / trace).glob(f"{prefix}*.csv"))
    }
    if not tables:
        raise TraceError(f"{results / trace}: no results of {experiment}; run 'make {experiment}'")
    return tables


def load_table(experiment: str, table: str, results: Path = RESULTS) -> pd.DataFrame:
    """Return one table of all traces that have it stored, with a column `trace` in front."""
    parts = [
        pd.read_csv(path).assign(trace=path.parent.name)
        for path in sorted(results.glob(f"*/{experiment}-{table}.csv"))
    ]
    if not parts:
        raise TraceError(f"{results}: no table {table} of {experiment}; run 'make {experiment}'")
    # An empty table has columns without a type, which would spread to the others.
    whole = pd.concat([part for part in parts if len(part)] or parts, ignore_index=True)
    return whole[["trace", *whole.columns.drop("trace")]]


def load_provenance(experiment: str, results: Path = RESULTS) -> dict[str, dict[str, Any]]:
    """Return where the stored tables of an experiment come from, by trace."""
    paths = sorted(results.glob(f"*/{experiment}.json"))
    return {path.parent.name: json.loads(path.read_text()) for path in paths}


def traces(results: Path = RESULTS) -> list[str]:
    """Return the names of the traces that have results."""
    return sorted(path.name for path in results.iterdir() if path.is_dir())


def main_trace(preferred: str = "weka", results: Path = RESULTS) -> str:
    """Return the trace that a chapter's prose is about: `preferred`, or the only one there is."""
    known = traces(results)
    if not known:
        raise TraceError(f"{results}: no results of any trace")
    return preferred if preferred in known else known[0]
