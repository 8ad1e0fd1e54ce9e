"""How near a synthetic workload comes to the published figures of the study's corpus."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
import pandas as pd

from kvsim.traces.workloads import Floats, Session, busy


class Target(NamedTuple):
    """A published figure; it is met if target / tolerance <= actual <= target * tolerance."""

    name: str
    target: float
    tolerance: float


TARGETS = (
    Target("gap p50 (s)", 2.1, 1.15),
    Target("gap p90 (s)", 51.0, 1.5),
    Target("gap p99 (s)", 3426.0, 1.5),
    Target("gaps over 60 s (share)", 0.095, 1.15),
    Target("gaps over 3,600 s (share)", 0.01, 1.15),
    Target("modes of the gaps", 2.0, 1.0),
    Target("span p50 (h)", 1.8, 1.15),
    Target("span p90 (h)", 28.0, 1.5),
    Target("duty p25 (share)", 0.034, 1.15),
    Target("duty p50 (share)", 0.139, 1.15),
    Target("duty p75 (share)", 0.339, 1.15),
    Target("sessions below half duty (share)", 0.855, 1.15),
    Target("chain p50 (blocks)", 1387.0, 1.15),
)


def shape(sessions: Iterable[Session]) -> pd.DataFrame:
    """Measure a workload against the published figures of the study's corpus.

    A gap is an arrival minus the one before it in the session, sub-agents included. A session's
    span is its last known end minus its first arrival; its duty is the union of its service
    intervals over that span. A request without ``api_time`` counts as taking no time.

    Parameters
    ----------
    sessions
        Session dicts in the WEKA format with relative nested times.

    Returns
    -------
    pandas.DataFrame
        One row a figure: ``name``, ``target``, ``actual``, ``tolerance`` (a factor, see `Target`).
    """
    gaps, spans, duties, chains = [], [], [], []
    for session in sessions:
        rows = sorted(_flat(session), key=lambda row: row[0])
        arrival, service, chain = (np.array(column) for column in zip(*rows, strict=True))
        gaps.append(np.diff(arrival))
        spans.append(float((arrival + service).max() - arrival[0]))
        duties.append(busy(arrival, service) / spans[-1])
        chains.append(chain)
    gap, duty = np.concatenate(gaps), np.array(duties)
    actual = [
        *np.quantile(gap, [0.5, 0.9, 0.99]),
        np.mean(gap > 60),
        np.mean(gap > 3600),
        _modes(gap),
        *np.quantile(np.array(spans) / 3600, [0.5, 0.9]),
        *np.quantile(duty, [0.25, 0.5, 0.75]),
        np.mean(duty < 0.5),
        np.median(np.concatenate(chains)),
    ]
    table = pd.DataFrame(TARGETS)
    table.insert(2, "actual", np.array(actual, np.float64))
    return table


def _flat(session: Session) -> Iterator[tuple[float, float, int]]:
    """Arrival and service in seconds and chain in blocks of every request of a session."""
    for entry in session["requests"]:
        start = entry["t"] if "requests" in entry else 0.0
        for row in entry.get("requests", [entry]):
            yield start + row["t"], row.get("api_time", 0.0), len(row["hash_ids"])


def _modes(gap: Floats, bandwidth: float = 0.3) -> int:
    """Count the peaks of a Gaussian density estimate of log10(gap); `bandwidth` in decades."""
    logs = np.log10(gap[gap > 0])
    grid = np.arange(logs.min() - 1, logs.max() + 1, 0.05)
    density = np.exp(-0.5 * ((grid[:, None] - logs) / bandwidth) ** 2).sum(axis=1)
    return int(np.sum((density[1:-1] > density[:-2]) & (density[1:-1] >= density[2:])))
