"""What goes wrong with real trace files: the case table, a row a test, for both readers."""

import gzip
import io
import json
import tarfile
from collections.abc import Callable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kvsim.cache.bounds import infinite
from kvsim.cache.engine import Switches, replay
from kvsim.cache.policies import POLICIES
from kvsim.traces.arrivals import arrange
from kvsim.traces.opening import open_trace
from kvsim.traces.readers import READERS, read
from kvsim.traces.trace import REQUEST_COLUMNS, Trace, TraceError, load

Chains = Sequence[Sequence[int | str]]


def mooncake_row(chain: Sequence[int | str], time: float = 0, size: int = 512, **more: Any) -> dict:
    tokens = len(chain) * size
    row = {"timestamp": time, "input_length": tokens, "output_length": 1, "hash_ids": list(chain)}
    return row | more


def weka_request(chain: Sequence[int | str], t: float = 0, size: int = 64, **more: Any) -> dict:
    return {"t": t, "type": "n", "in": len(chain) * size, "out": 1, "hash_ids": list(chain)} | more


def session(requests: list[dict], name: str = "s", size: int = 64, scope: str = "local") -> dict:
    return {"id": name, "block_size": size, "hash_id_scope": scope, "requests": requests}


def jsonl(rows: Sequence[dict]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Return a function that writes rows (or text, or bytes) to a file."""

    def to_file(content: Sequence[dict] | str | bytes, name: str = "trace.jsonl") -> Path:
        if not isinstance(content, str | bytes):
            content = jsonl(content)
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return to_file


@pytest.fixture(params=["mooncake", "weka"])
def of_chains(request: pytest.FixtureRequest, write: Callable[..., Path]) -> Callable[..., Trace]:
    """Return a function that reads chains, a second apart, through one reader or the other."""

    def build(chains: Chains, size: int = 512) -> Trace:
        if request.param == "mooncake":
            rows = [mooncake_row(chain, 1000 * i, size) for i, chain in enumerate(chains)]
            return read(write(rows), block_size=size)
        requests = [weka_request(chain, i, size) for i, chain in enumerate(chains)]
        return arrange(read(write([session(requests, size=size)])), 0)

    return build


def hits(trace: Trace, capacity: int | None = None, **switches: Any) -> tuple[int, int]:
    """Return (block hits, blocks asked for) of LRU; without a capacity, of an infinite cache."""
    if capacity is None:
        result = infinite(trace, trace.distinct_blocks, Switches(**switches))
    else:
        result = replay(trace, POLICIES["lru"], capacity, switches=Switches(**switches))
    return int(result.hit_blocks.sum()), trace.blocks


# --- the case table -----------------------------------------------------------------------------


def test_case_1_mooncake_needs_exactly_ceil(write: Callable[..., Path]) -> None:
    bad = write([mooncake_row([1]), mooncake_row([1, 2], input_length=20)])
    with pytest.raises(TraceError, match=r"trace\.jsonl:2: 2 hash_ids for input_length 20.* 1$"):
        read(bad)
    with pytest.raises(TraceError, match=r":1: 1 hash_ids for input_length 600.* exactly 2"):
        read(write([mooncake_row([1], input_length=600)]))


def test_case_1_weka_takes_floor_or_ceil(write: Callable[..., Path]) -> None:
    def one(chain: Sequence[int], tokens: int) -> Trace:
        return read(write([session([weka_request(chain, **{"in": tokens})])]))

    floor, ceil = one([1], 100), one([1, 2], 100)
    assert (floor.chain_tokens[0], floor.unblocked_tokens[0]) == (64, 36)
    assert (ceil.chain_tokens[0], ceil.unblocked_tokens[0]) == (100, 0)
    with pytest.raises(TraceError, match=r"trace\.jsonl.*request 0: 3 hash_ids for in 100"):
        one([1, 2, 3], 100)
    with pytest.raises(TraceError, match=r"2 hash_ids for in 20.* 0 .*or 1"):
        one([1, 2], 20)


@pytest.mark.parametrize(
    ("row", "chains", "expected"),
    [
        (2, [[1], [4294967297]], (0, 2)),
        (2, [[1], [1]], (1, 2)),
        (3, [[18174474959339759123], [18174474959339759124]], (0, 2)),
        (3, [[18174474959339759123], [18174474959339759123]], (1, 2)),
        (4, [["a"], ["a"]], (1, 2)),
        (4, [["1f"], ["1F"]], (0, 2)),
        (8, [[1, 5], [2, 9], [1, 9]], (1, 6)),
        (9, [[1, 1]], (0, 2)),
        (9, [[1, 1], [1, 1]], (2, 4)),
    ],
)
def test_cases_of_an_infinite_cache(
    of_chains: Callable[..., Trace], row: int, chains: Chains, expected: tuple[int, int]
) -> None:
    assert hits(of_chains(chains)) == expected
    assert hits(of_chains(chains), capacity=100) == expected


def test_case_5_children_go_before_parents(of_chains: Callable[..., Trace]) -> None:
    assert hits(of_chains([[1, 2, 3], [9], [1, 2, 3]]), capacity=3) == (2, 7)


def test_case_6_chain_longer_than_the_cache(of_chains: Callable[..., Trace]) -> None:
    trace = of_chains([[1, 2, 3], [1, 2, 3]])
    assert hits(trace, capacity=2) == (2, 6)
    for stop in range(3):
        result = replay(trace.select(np.arange(stop)), POLICIES["lru"], 2)
        assert result.inserted_blocks - result.evicted_blocks <= 2  # type: ignore[operator]


def test_case_7_full_hit_on_a_block_boundary(of_chains: Callable[..., Trace]) -> None:
    trace = of_chains([[1, 2], [1, 2]], size=16)
    assert trace.input_tokens.tolist() == [32, 32]
    assert hits(trace) == hits(trace, 10) == (2, 4)
    assert hits(trace, hit_cap="engine") == hits(trace, 10, hit_cap="engine") == (1, 4)


def test_case_10_session_rows_are_never_guessed(write: Callable[..., Path]) -> None:
    path = write([mooncake_row([1], session_id="x"), mooncake_row([2], 5, session_id="x")])
    assert hits(read(path, rows="cumulative")) == (0, 2)
    incremental = read(path, rows="incremental")
    assert hits(incremental) == (1, 3)
    assert incremental.input_tokens.tolist() == [512, 1024]
    with pytest.raises(TraceError, match=r"jsonl:1: .*--rows cumulative.*--rows incremental"):
        read(path)


def nested(marker: float, *inner: float) -> dict:
    requests = [weka_request([i + 1], t) for i, t in enumerate(inner)]
    return {"t": marker, "type": "subagent", "requests": requests}


@pytest.mark.parametrize("inner", [(0, 6), (50, 56)], ids=["relative", "absolute"])
def test_case_11_nested_times(write: Callable[..., Path], inner: tuple[float, float]) -> None:
    trace = read(write([session([nested(50, *inner)])]))
    assert trace.arrival.tolist() == [50, 56]
    assert trace.subagent.all()


def test_case_11_decided_once_a_file(write: Callable[..., Path]) -> None:
    # The first sub-agent alone could be either; the second shows that the file is relative.
    path = write([session([nested(3, 5), nested(50, 6)])])
    assert read(path).arrival.tolist() == [8, 56]
    assert read(path, nested="relative").arrival.tolist() == [8, 56]
    assert read(path, nested="absolute").arrival.tolist() == [5, 6]


def test_case_12_local_scope(write: Callable[..., Path]) -> None:
    def two(scope: str) -> Trace:
        rows = [session([weka_request([1, 2], t)], f"s{t}", scope=scope) for t in (0, 1)]
        return read(write(rows), keep_repeats=True)

    assert hits(two("local")) == (0, 4)
    assert hits(two("global")) == (2, 4)


def test_case_13_unknown_columns(write: Callable[..., Path]) -> None:
    extra = {"priority": 3, "nested": {"hash_ids": [7]}, "messages": [{"role": "user"}]}
    assert hits(read(write([mooncake_row([1], **extra), mooncake_row([1])]))) == (1, 2)
    row = session([weka_request([1], **extra), weka_request([1])]) | extra
    assert hits(read(write([row]))) == (1, 2)


def test_case_14_equal_times_keep_file_order(
    write: Callable[..., Path], of_chains: Callable[..., Trace]
) -> None:
    path = write([mooncake_row([number]) for number in range(50)])
    for trace in (read(path), read(path)):
        assert trace.order.tolist() == list(range(50))


def test_case_14_files_in_byte_order_of_their_names(tmp_path: Path) -> None:
    folder = tmp_path / "sessions"
    folder.mkdir()
    for number, name in enumerate(["b", "é", "a10", "a9", "B"]):
        text = json.dumps(session([weka_request([number + 1], out=number)]))
        (folder / f"{name}.json").write_text(text)
    assert read(folder).output_tokens.tolist() == [4, 2, 3, 0, 1]


def test_case_15_bom_crlf_and_blank_lines(write: Callable[..., Path]) -> None:
    for rows in ([mooncake_row([1]), mooncake_row([1], 5)], [session([weka_request([1])] * 2)]):
        clean = read(write(rows))
        text = "\ufeff" + jsonl(rows).replace("\n", "\r\n") + "\r\n\n"
        marred = read(write(text))
        assert hits(marred) == hits(clean) == (1, 2)
        assert marred.arrival.tolist() == clean.arrival.tolist()


@pytest.mark.parametrize("kind", ["mooncake", "weka"])
def test_case_16_truncated_last_line(write: Callable[..., Path], kind: str) -> None:
    rows = {
        "mooncake": [mooncake_row([1]), mooncake_row([1, 2])],
        "weka": [session([weka_request([1])], "a"), session([weka_request([2])], "b")],
    }[kind]
    with pytest.raises(TraceError, match=r"trace\.jsonl:2: not a complete JSON object"):
        read(write(jsonl(rows)[:-20]))


@pytest.mark.parametrize("kind", ["mooncake", "weka"])
def test_case_16_truncated_gzip(write: Callable[..., Path], kind: str) -> None:
    noise = np.random.default_rng(0).integers(2**62, size=(2000, 1)).tolist()
    rows = {
        "mooncake": [mooncake_row(chain) for chain in noise],
        "weka": [session([weka_request(chain)]) for chain in noise],
    }[kind]
    whole = gzip.compress(jsonl(rows).encode())
    assert read(write(whole, "trace.jsonl.gz")).requests == 2000
    with pytest.raises(TraceError, match=r"trace\.jsonl\.gz:\d\d+: .*cut off"):
        read(write(whole[: len(whole) // 2], "trace.jsonl.gz"))


def test_case_16_truncated_archive(tmp_path: Path) -> None:
    path = archive(tmp_path / "traces.tar.xz", agents())
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(TraceError, match=r"traces\.tar\.xz.*cut off or damaged"):
        read(path, format="weka")


def test_case_17_misspelt_names(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"nowhere\.jsonl: no such file"):
        read(tmp_path / "nowhere.jsonl")
    with pytest.raises(TraceError, match=r"did you mean 'conversation'.*sample, .*synthetic"):
        open_trace("converstion")
    (tmp_path / "x.jsonl").write_text("")
    with pytest.raises(TraceError, match="format 'moonkake' is unknown; known: mooncake, weka"):
        read(tmp_path / "x.jsonl", format="moonkake")


def test_case_19_capacity_0(of_chains: Callable[..., Trace]) -> None:
    assert hits(of_chains([[1, 2], [1, 2]]), capacity=0) == (0, 4)


@pytest.mark.parametrize("content", ["", "\n", jsonl([session([])])], ids=repr)
def test_case_19_empty_trace(write: Callable[..., Path], content: str) -> None:
    trace = read(write(content))
    row = replay(trace, POLICIES["lru"], 10).row()
    assert (row["requests"], row["blocks"], row["hit_blocks"]) == (0, 0, 0)
    assert row["hit_ratio"] is None


def test_case_19_nothing_to_read(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="no session"):
        read(tmp_path)


@pytest.mark.parametrize("kind", ["mooncake", "weka"])
def test_case_20_out_of_order_times(write: Callable[..., Path], kind: str) -> None:
    times = [3, 1, 3, 2, 1]
    if kind == "mooncake":
        rows = [mooncake_row([9], 1000 * t) for t in times]
    else:
        rows = [session([weka_request([9], t) for t in times])]
    trace = read(write(rows))
    assert trace.arrival.tolist() == [1, 1, 2, 3, 3]
    assert trace.order.tolist() == [1, 4, 3, 0, 2]
    assert any(note.startswith("3 requests") for note in trace.notes)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"timestamp": -1}, "timestamp is -1"),
        ({"timestamp": float("nan")}, "not a complete JSON object"),
        ({"timestamp": None}, "no timestamp"),
        ({"input_length": 0, "hash_ids": []}, "input_length is 0"),
        ({"input_length": -5}, "input_length is -5"),
        ({"output_length": -5}, "output_length is -5"),
        ({"output_length": 2**63}, f"output_length is {2**63}"),
        ({"hash_ids": []}, "0 hash_ids for input_length 512"),
        ({"hash_ids": [1.5]}, "hash_ids must be an array of 64-bit integers or of strings"),
        ({"hash_ids": [True]}, "hash_ids must be"),
        ({"hash_ids": 1234}, "hash_ids must be"),
        ({"hash_ids": "1234"}, "hash_ids must be"),
        ({"hash_ids": None}, "hash_ids must be"),
    ],
    ids=repr,
)
def test_case_21_mooncake_values(write: Callable[..., Path], more: dict, message: str) -> None:
    with pytest.raises(TraceError, match=r"trace\.jsonl:2: .*") as raised:
        read(write([mooncake_row([1]), mooncake_row([1]) | more]))
    assert message in str(raised.value)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"t": -1}, "t is -1"),
        ({"t": float("nan")}, "not a complete JSON object"),
        ({"in": -64, "hash_ids": []}, "in is -64"),
        ({"out": -1}, "out is -1"),
        ({"out": 2**64}, f"out is {2**64}"),
        ({"api_time": -1}, "api_time is -1"),
        ({"hash_ids": []}, "0 hash_ids for in 64"),
        ({"hash_ids": [None]}, "hash_ids must be"),
    ],
    ids=repr,
)
def test_case_21_weka_values(write: Callable[..., Path], more: dict, message: str) -> None:
    path = write([session([weka_request([1]) | more])])
    with pytest.raises(TraceError) as raised:
        read(path)
    assert str(path) in str(raised.value)
    assert message in str(raised.value)


def test_case_21_weka_prompt_shorter_than_a_block_has_an_empty_chain(
    write: Callable[..., Path],
) -> None:
    trace = read(write([session([weka_request([], **{"in": 30}), weka_request([1], 1)])]))
    assert trace.terminal.tolist() == [-1, 0]
    assert trace.unblocked_tokens.tolist() == [30, 0]
    assert hits(trace) == hits(trace, 5) == (0, 1)


def test_case_22_pretty_printed_json(write: Callable[..., Path]) -> None:
    several = "".join(json.dumps(mooncake_row([i]), indent=2) + "\n" for i in (1, 2))
    with pytest.raises(TraceError, match=r":1: .*pretty-printed JSON.*JSONL"):
        read(write(several), format="mooncake")
    with pytest.raises(TraceError, match="pretty-printed"):
        read(write(several))
    row = session([weka_request([1]), weka_request([1])])
    assert hits(read(write(json.dumps(row, indent=2), "one.json"))) == (1, 2)
    with pytest.raises(TraceError, match="pretty-printed"):
        read(write(2 * (json.dumps(row, indent=2) + "\n")))


# --- the two readers ----------------------------------------------------------------------------


def agents() -> dict[str, dict]:
    """Return five sessions by file name: a sub-agent, a repeat, strange names, long chains."""
    chain = list(range(1, 41))
    return {
        "b.json": session(
            [weka_request(chain, 0), nested(4, 0, 2), weka_request([*chain, 50], 9, api_time=2.5)],
            "one",
        ),
        "a.json": session([weka_request(chain[:20], 1), weka_request([*chain[:20], 7], 2)], "two"),
        "c.json": session([weka_request(chain[:20], 1), weka_request([*chain[:20], 7], 2)], "2"),
        "B.json": session([weka_request([3, 1, 2], 0)], "three"),
        "d.json": session([], "none"),
    }


def archive(path: Path, sessions: dict[str, dict]) -> Path:
    with tarfile.open(path, "w:xz") as file:
        for name, content in sessions.items():
            text = json.dumps(content).encode()
            member = tarfile.TarInfo(f"traces/{name}")
            member.size = len(text)
            file.addfile(member, io.BytesIO(text))
    return path


def columns(trace: Trace) -> list[list]:
    """Return the requests' columns; nodes are numbered by the order of reading, so without them."""
    names = [name for name in REQUEST_COLUMNS if name not in ("service", "terminal")]
    names += ["chain_blocks", "chain_tokens", "seen_blocks", "seen_tokens"]
    service = np.nan_to_num(trace.service, nan=-1.0)
    return [getattr(trace, name).tolist() for name in names] + [service.tolist()]


def test_weka_reads_the_same_from_every_container(tmp_path: Path) -> None:
    sessions = agents()
    folder = tmp_path / "folder"
    folder.mkdir()
    for name, content in sessions.items():
        (folder / name).write_text(json.dumps(content))
    in_order = jsonl([sessions[name] for name in sorted(sessions)])
    (tmp_path / "lines.jsonl").write_text(in_order)
    (tmp_path / "lines.jsonl.gz").write_bytes(gzip.compress(in_order.encode()))
    archive(tmp_path / "traces.tar.xz", sessions)
    expected = columns(read(folder))
    for name in ("lines.jsonl", "lines.jsonl.gz", "traces.tar.xz"):
        assert columns(read(tmp_path / name)) == expected


def test_weka_drops_repeats_and_says_so(tmp_path: Path) -> None:
    path = archive(tmp_path / "traces.tar.xz", agents())
    once, kept = read(path), read(path, keep_repeats=True)
    assert (once.requests, kept.requests) == (7, 9)
    assert any(note.startswith("1 sessions repeat") for note in once.notes)
    assert not any("repeat" in note for note in kept.notes)


def test_weka_keeps_the_first_repeat_in_byte_order(tmp_path: Path) -> None:
    # a.json and its repeat c.json, whichever is read first.
    sessions = agents()
    forward = read(archive(tmp_path / "f.tar.xz", dict(sorted(sessions.items()))))
    backward = read(archive(tmp_path / "b.tar.xz", dict(sorted(sessions.items(), reverse=True))))
    assert forward.session.tolist() == backward.session.tolist()
    assert forward.order.tolist() == backward.order.tolist()


def test_weka_columns(tmp_path: Path) -> None:
    trace = read(archive(tmp_path / "traces.tar.xz", agents()))
    # B.json, a.json, b.json
    assert trace.session.tolist() == [0, 2, 1, 1, 2, 2, 2]
    assert trace.arrival.tolist() == [0, 0, 1, 2, 4, 6, 9]
    assert trace.subagent.tolist() == [False] * 4 + [True] * 2 + [False]
    assert np.isnan(trace.service[:-1]).all()
    assert trace.service[-1] == 2.5


@pytest.mark.parametrize("batch", [1, 60])
def test_how_many_requests_are_parsed_together_does_not_show(
    of_chains: Callable[..., Trace], monkeypatch: pytest.MonkeyPatch, batch: int
) -> None:
    rng = np.random.default_rng(0)
    chains = [[*range(rng.integers(1, 40)), *rng.integers(0, 99, 2).tolist()] for _ in range(60)]
    together = of_chains(chains)
    for reader in ("mooncake", "weka"):
        monkeypatch.setattr(f"kvsim.traces.readers.{reader}.BATCH", batch)
    apart = of_chains(chains)
    for one, other in zip(together.tree, apart.tree, strict=True):
        assert one.tolist() == other.tolist()
    for name in REQUEST_COLUMNS:
        np.testing.assert_array_equal(getattr(together, name), getattr(apart, name))


def test_weka_block_size_of_0_is_an_error(write: Callable[..., Path]) -> None:
    with pytest.raises(TraceError, match=r"trace\.jsonl:1: block_size is 0; it must be at least 1"):
        read(write([session([], size=0)]))


def test_weka_sessions_of_other_block_sizes_are_an_error(write: Callable[..., Path]) -> None:
    rows = [session([weka_request([1])], size=64), session([], size=32)]
    with pytest.raises(TraceError, match=r"trace\.jsonl:2: block_size 32.* 64"):
        read(write(rows))
    with pytest.raises(TraceError, match=r"hash_id_scope is 'galactic'"):
        read(write([session([], scope="galactic")]))


def test_mooncake_aliases_and_delays(write: Callable[..., Path]) -> None:
    rows = [
        {"created_time": 1000, "input_tokens": 500, "output_tokens": 2, "hash_ids": [1]},
        {"timestamp": 1000, "input_length": 500, "input_tokens": 500, "hash_ids": [1]},
    ]
    trace = read(write(rows))
    assert trace.arrival.tolist() == [1.0, 1.0]
    assert trace.output_tokens.tolist() == [2, 0]
    later = [mooncake_row([1], session_id=4), mooncake_row([2], session_id=4, delay_ms=250)]
    del later[1]["timestamp"]
    assert read(write(later), rows="incremental").arrival.tolist() == [0.0, 0.25]
    with pytest.raises(TraceError, match="input_length is 500 and its alias says 400"):
        read(write([rows[1] | {"input_tokens": 400}]))


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        (mooncake_row([1, 2], input_length=600), mooncake_row([1, 2], input_length=601), "another"),
        (mooncake_row([1, 2], input_length=600), mooncake_row([1, 2, 3]), "partial at its first"),
        (mooncake_row([1, 2, 3]), mooncake_row([1, 2], input_length=600), "full at its first"),
        (mooncake_row([1, 2]), mooncake_row([1, 2], input_length=600), "another number"),
    ],
)
def test_tokens_of_a_block_are_fixed(
    write: Callable[..., Path], first: dict, second: dict, message: str
) -> None:
    with pytest.raises(TraceError, match=rf"trace\.jsonl:2: .*{message}"):
        read(write([first, second]))


@pytest.mark.parametrize(
    "chains", [([1], ["a"]), (["a"], [1]), ([1, "a"],), ([-1], [2**64 - 1]), ([2**64],)], ids=repr
)
def test_ids_that_cannot_be_told_apart_are_refused(
    write: Callable[..., Path], chains: Chains
) -> None:
    with pytest.raises(TraceError, match=rf"trace\.jsonl:{len(chains)}: .*(ids|strings)"):
        read(write([mooncake_row(chain) for chain in chains]))


def test_options_of_another_format_are_refused(write: Callable[..., Path]) -> None:
    with pytest.raises(TraceError, match="option nested does not apply to the format mooncake"):
        read(write([mooncake_row([1])]), nested="relative")
    with pytest.raises(TraceError, match="no known format; known: mooncake, weka"):
        read(write([{"colour": 1}]))


def test_progress_ends_at_the_whole_size(write: Callable[..., Path], tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    path = write([mooncake_row([i]) for i in range(100)])
    read(path, progress=lambda done, total: told.append((done, total)))
    assert told[-1] == (path.stat().st_size, path.stat().st_size)
    assert told == sorted(told)


# --- saved traces -------------------------------------------------------------------------------


def test_a_saved_trace_is_the_same_trace(tmp_path: Path) -> None:
    trace = read(archive(tmp_path / "traces.tar.xz", agents()))
    trace.save(tmp_path / "saved.npz")
    again = read(tmp_path / "saved.npz")
    assert columns(again) == columns(trace)
    assert again.terminal.tolist() == trace.terminal.tolist()
    assert [column.tolist() for column in again.tree] == [column.tolist() for column in trace.tree]
    for plain in {f.name for f in fields(Trace)} - set(REQUEST_COLUMNS) - {"tree"}:
        assert getattr(again, plain) == getattr(trace, plain)
    assert [path.name for path in tmp_path.glob("*saved*")] == ["saved.npz"]


def test_a_saved_trace_of_another_version_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: Callable[..., Path]
) -> None:
    trace = read(write([mooncake_row([1])]))
    with monkeypatch.context() as patch:
        patch.setattr("kvsim.traces.trace.FORMAT_VERSION", 99)
        trace.save(tmp_path / "saved.npz")
    with pytest.raises(TraceError, match="format 99; this kvsim reads format"):
        load(tmp_path / "saved.npz")
    with pytest.raises(TraceError, match="not a trace saved by kvsim"):
        load(write("PK"))
    assert "kvsim" in READERS


def test_a_trace_cannot_be_changed(write: Callable[..., Path]) -> None:
    trace = read(write([mooncake_row([1])]))
    with pytest.raises(ValueError, match="read-only"):
        trace.arrival[0] = 5
