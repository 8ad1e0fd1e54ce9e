"""The synthetic workloads: shape, well-formedness, determinism, and the committed sample."""

import hashlib
import json
import tarfile
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from kvsim.traces import shape, workloads

SAMPLE = Path(__file__).parents[1] / "data" / "sample.tar.xz"


def members(path):
    with tarfile.open(path) as archive:
        return {info.name: archive.extractfile(info).read() for info in archive}


@pytest.fixture(scope="module")
def files():
    return members(SAMPLE)


@pytest.fixture(scope="module")
def sessions(files):
    return [json.loads(text) for text in files.values()]


def requests(session):
    """Every (absolute arrival, request) of a session, in the order of the file."""
    rows = []
    for entry in session["requests"]:
        if entry["type"] == "subagent":
            rows += [(entry["t"] + row["t"], row) for row in entry["requests"]]
        else:
            rows.append((entry["t"], entry))
    return rows


def busy(intervals):
    """Length of a union of (start, end) intervals."""
    total, covered = 0.0, -np.inf
    for start, end in sorted(intervals):
        total += max(0.0, end - max(start, covered))
        covered = max(covered, end)
    return total


def figures(sessions):
    """The shape straight from the JSON, without the package."""
    gaps, spans, duties, chains = [], [], [], []
    for session in sessions:
        intervals = [(t, t + row.get("api_time", 0.0)) for t, row in requests(session)]
        arrivals = sorted(start for start, _ in intervals)
        gaps += [later - earlier for earlier, later in pairwise(arrivals)]
        spans.append(max(end for _, end in intervals) - arrivals[0])
        duties.append(busy(intervals) / spans[-1])
        chains += [len(row["hash_ids"]) for _, row in requests(session)]
    gaps, spans, duties = np.array(gaps), np.array(spans), np.array(duties)
    return {
        "gap p50 (s)": np.percentile(gaps, 50),
        "gap p90 (s)": np.percentile(gaps, 90),
        "gap p99 (s)": np.percentile(gaps, 99),
        "gaps over 60 s (share)": np.count_nonzero(gaps > 60) / len(gaps),
        "gaps over 3,600 s (share)": np.count_nonzero(gaps > 3600) / len(gaps),
        "span p50 (h)": np.percentile(spans, 50) / 3600,
        "span p90 (h)": np.percentile(spans, 90) / 3600,
        "duty p25 (share)": np.percentile(duties, 25),
        "duty p50 (share)": np.percentile(duties, 50),
        "duty p75 (share)": np.percentile(duties, 75),
        "sessions below half duty (share)": np.count_nonzero(duties < 0.5) / len(duties),
        "chain p50 (blocks)": np.median(chains),
    }


# the published figures; medians and shares within 15 %, p90 and p99 within a factor of 1.5
PUBLISHED = [
    ("gap p50 (s)", 2.1, 1.15),
    ("gap p90 (s)", 51, 1.5),
    ("gap p99 (s)", 3426, 1.5),
    ("gaps over 60 s (share)", 0.095, 1.15),
    ("gaps over 3,600 s (share)", 0.01, 1.15),
    ("span p50 (h)", 1.8, 1.15),
    ("span p90 (h)", 28, 1.5),
    ("duty p25 (share)", 0.034, 1.15),
    ("duty p50 (share)", 0.139, 1.15),
    ("duty p75 (share)", 0.339, 1.15),
    ("sessions below half duty (share)", 0.855, 1.15),
    ("chain p50 (blocks)", 1387, 1.15),
]


@pytest.fixture(scope="module")
def actual(sessions):
    return figures(sessions)


@pytest.fixture(scope="module")
def table(sessions):
    return shape.shape(sessions).set_index("name")


@pytest.mark.parametrize(("name", "target", "tolerance"), PUBLISHED)
def test_sample_has_the_published_shape(actual, table, name, target, tolerance):
    value = actual[name]
    assert target / tolerance <= value <= target * tolerance, f"target {target}, actual {value:.4g}"
    assert table.loc[name, "actual"] == pytest.approx(value, rel=1e-9)
    assert tuple(table.loc[name, ["target", "tolerance"]]) == (target, tolerance)


def test_gaps_of_the_sample_are_bimodal(sessions, table):
    gaps = [np.diff(sorted(t for t, _ in requests(session))) for session in sessions]
    edges = 10.0 ** np.arange(-2, 6.01, 0.25)
    counts = np.histogram(np.concatenate(gaps), edges)[0]
    loops, pauses = counts[edges[:-1] < 10].max(), counts[edges[:-1] > 60].max()
    valley = counts[(edges[:-1] >= 10) & (edges[:-1] <= 60)].min()
    assert valley < min(loops, pauses) / 2
    assert table.loc["modes of the gaps", "actual"] == table.loc["modes of the gaps", "target"] == 2


@pytest.mark.parametrize("seed", [1, 2])
def test_shape_does_not_hang_on_the_seed(seed):
    table = shape.shape(workloads.agent_sessions(seed=seed))
    ratio = table["actual"] / table["target"]
    assert ratio.between(1 / table["tolerance"], table["tolerance"]).all(), table.to_string()


def test_sample_is_small_and_has_enough_sessions(sessions):
    assert SAMPLE.stat().st_size <= 1_000_000
    assert len(sessions) >= 40
    assert sum(len(row["hash_ids"]) for s in sessions for _, row in requests(s)) < 6_000_000


def test_sample_has_what_agent_traces_have(sessions):
    entries = [entry for session in sessions for entry in session["requests"]]
    rows = [row for session in sessions for _, row in requests(session)]
    assert sum(entry["type"] == "subagent" for entry in entries) > 50
    assert {row["type"] for row in rows} == {"n", "s"}
    assert 0.01 < np.mean(["api_time" not in row for row in rows]) < 0.04
    main_rows = [[e["in"] for e in s["requests"] if e["type"] != "subagent"] for s in sessions]
    assert sum(int(np.sum(np.diff(tokens) < 0)) for tokens in main_rows) > 20


GENERATED = {
    "agent": lambda seed: workloads.agent_sessions(sessions=12, seed=seed),
    "zipf": lambda seed: workloads.zipf_documents(seed=seed),
    "chat": lambda seed: workloads.multi_turn_chat(seed=seed),
}


@pytest.mark.parametrize("seed", [0, 1, 7])
@pytest.mark.parametrize("name", GENERATED)
def test_sessions_are_well_formed(name, seed):
    for session in GENERATED[name](seed):
        assert_well_formed(session)


def test_sample_is_well_formed(files, sessions):
    assert list(files) == sorted(files)
    for name, session in zip(files, sessions, strict=True):
        assert name == f"traces/{session['id']}.json"
        assert_well_formed(session)


def assert_well_formed(session):
    assert session["block_size"] == 64
    assert session["hash_id_scope"] == "local"
    assert_times(session)
    parents = {}
    for _, row in requests(session):
        ids = row["hash_ids"]
        assert len(ids) == row["in"] // 64
        assert row["out"] > 0
        for parent, block in zip([None, *ids], ids, strict=False):
            assert parents.setdefault(block, parent) == parent, "an id with two parents"


def assert_times(session):
    starts = [entry["t"] for entry in session["requests"]]
    assert starts == sorted(starts)
    assert starts[0] == 0.0
    main = [entry for entry in session["requests"] if entry["type"] != "subagent"]
    agents = [entry["requests"] for entry in session["requests"] if entry["type"] == "subagent"]
    for rows in [main, *agents]:
        assert rows[0]["t"] == 0.0  # so nested times are relative to the marker
        assert all(row.get("api_time", 0.01) > 0 and row.get("think_time", 0) >= 0 for row in rows)
        for earlier, later in pairwise(rows):
            assert later["t"] >= earlier["t"] + earlier.get("api_time", 0.0) - 1e-6, "overlap"


def test_sub_agents_share_their_kinds_prefix(sessions):
    shared = 0
    for session in sessions:
        tools = session["requests"][0]["hash_ids"][: session["tool_tokens"] // 64]
        first = {}
        for entry in session["requests"]:
            if entry["type"] != "subagent":
                continue
            ids = entry["requests"][0]["hash_ids"]
            general = entry["subagent_type"] == "general"
            assert (ids[: len(tools)] == tools) == general
            seen = first.setdefault(entry["subagent_type"], ids)
            common = len(tools) if general else workloads.Parameters().agent_tool_tokens // 64
            assert seen[:common] == ids[:common]
            shared += seen is not ids
    assert shared > 20


@pytest.mark.parametrize("name", GENERATED)
def test_seed_decides_everything(name):
    generate = GENERATED[name]
    assert list(generate(3)) == list(generate(3))
    assert list(generate(3)) != list(generate(4))


def test_sample_regenerates(files, tmp_path):
    path = tmp_path / "sample.tar.xz"
    workloads.write(path, workloads.agent_sessions())
    regenerated = members(path)
    assert {n: hashlib.sha256(text).hexdigest() for n, text in regenerated.items()} == {
        n: hashlib.sha256(text).hexdigest() for n, text in files.items()
    }


def test_written_bytes_are_the_same_every_time(tmp_path):
    for name in ("a.tar.xz", "b.tar.xz"):
        workloads.write(tmp_path / name, workloads.multi_turn_chat(sessions=3))
    assert (tmp_path / "a.tar.xz").read_bytes() == (tmp_path / "b.tar.xz").read_bytes()


def test_failed_write_leaves_the_old_file_alone(tmp_path):
    path = tmp_path / "a.tar.xz"
    path.write_bytes(b"old")

    def broken():
        yield from workloads.multi_turn_chat(sessions=1)
        raise RuntimeError

    with pytest.raises(RuntimeError):
        workloads.write(path, broken())
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]
