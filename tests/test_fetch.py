"""Fetching traces: a mirror, a server that misbehaves, and opening by name."""

import gzip
import hashlib
import json
import os
import shutil
import threading
import tomllib
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace

import pytest

from kvsim.traces import download as downloading
from kvsim.traces import opening
from kvsim.traces.download import (
    CorruptError,
    FetchError,
    Patience,
    RemoteFile,
    download,
    git_blob_id,
)
from kvsim.traces.fetch import fetch
from kvsim.traces.opening import open_trace
from kvsim.traces.registry import known_names, registry, select
from kvsim.traces.trace import Trace, TraceError

CONTENT = bytes(range(256)) * 2_000
SHA256 = hashlib.sha256(CONTENT).hexdigest()
BLOB = hashlib.sha1(f"blob {len(CONTENT)}\0".encode() + CONTENT).hexdigest()
HASTY = Patience(attempts=3, pause=0.0, timeout=0.3)
ROWS = "".join(
    json.dumps({"timestamp": t, "input_length": 1024, "output_length": 1, "hash_ids": [1, t]})
    + "\n"
    for t in range(2, 6)
)


class Server(ThreadingHTTPServer):
    """Serve `files`; `plans[path]` says how the next requests for a path go wrong."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files: dict[str, bytes] = {}
        self.plans: dict[str, list[str]] = defaultdict(list)
        self.ranges: list[str | None] = []
        self.released = threading.Event()

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}{path}"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def log_message(self, *_: object) -> None:
        """Keep the test's output clean."""

    def do_HEAD(self) -> None:
        body = self.server.files[self.path]
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("ETag", f'"{hashlib.sha256(body).hexdigest()}"')
        self.send_header("X-Repo-Commit", "c0ffee" * 6 + "c0ff")
        self.end_headers()

    def do_GET(self) -> None:
        plan = self.server.plans[self.path]
        step = plan.pop(0) if plan else "ok"
        self.server.ranges.append(self.headers["Range"])
        if step.isdigit():
            self.send_error(int(step))
            return
        body = self.server.files.get(self.path)
        if body is None:
            self.send_error(404)
            return
        if step == "corrupt":
            body = b"X" * len(body)
        start = 0
        if self.headers["Range"] and step != "ignore-range":
            start = int(self.headers["Range"].removeprefix("bytes=").rstrip("-"))
        if start >= len(body):
            self.send_error(416)
            return
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(body) - start))
        self.end_headers()
        half = (len(body) - start) // 2
        self.wfile.write(body[start : start + half])
        if step == "truncate":
            return
        if step == "stall":
            self.wfile.flush()
            self.server.released.wait(5)
            return
        self.wfile.write(body[start + half :])


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    server.files["/t.jsonl"] = CONTENT
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield server
    server.released.set()
    server.shutdown()
    server.server_close()


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty data folder that stands in for the project's own."""
    folder = tmp_path / "data"
    folder.mkdir()
    monkeypatch.setenv("KVSIM_DATA", str(folder))
    return folder


def write_registry(data: Path, *entries: dict[str, object]) -> None:
    blocks = []
    for entry in entries:
        row = {"set": "one", "licence": "Apache-2.0", "url": "", **entry}
        blocks.append("[[trace]]\n" + "".join(f"{k} = {json.dumps(v)}\n" for k, v in row.items()))
    (data / "registry.toml").write_text("\n".join(blocks))


def remote(server: Server, **known: object) -> RemoteFile:
    return RemoteFile("t.jsonl", server.url("/t.jsonl"), **{"sha256": SHA256, **known})  # type: ignore[arg-type]


# --- one file over HTTP --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "plan",
    [
        [],
        ["500"],
        ["503", "429"],
        ["truncate"],
        ["truncate", "truncate"],
        ["stall"],
        ["truncate", "ignore-range"],
        ["truncate", "corrupt"],
        ["truncate", "500"],
    ],
    ids="-".join,
)
def test_download_survives_what_passes(server: Server, tmp_path: Path, plan: list[str]) -> None:
    server.plans["/t.jsonl"] = plan
    target = tmp_path / "deep" / "t.jsonl"
    download(remote(server), target, HASTY)
    assert target.read_bytes() == CONTENT
    assert os.listdir(target.parent) == ["t.jsonl"]


def test_next_call_goes_on_where_the_last_one_stopped(server: Server, tmp_path: Path) -> None:
    server.plans["/t.jsonl"] = ["truncate", "500", "500"]
    target = tmp_path / "t.jsonl"
    with pytest.raises(FetchError, match=r"t\.jsonl: gave up after 3 .*status 500") as caught:
        download(remote(server), target, HASTY)
    assert not target.exists()
    kept = (tmp_path / "t.jsonl.part").stat().st_size
    assert 0 < kept <= len(CONTENT) // 2
    assert str(caught.value).endswith(f"from byte {kept:,}")
    server.ranges.clear()
    download(remote(server), target, HASTY)
    assert server.ranges == [f"bytes={kept}-"]
    assert target.read_bytes() == CONTENT


def test_stalled_server_is_given_up(server: Server, tmp_path: Path) -> None:
    server.plans["/t.jsonl"] = ["stall"] * 3
    with pytest.raises(FetchError, match="gave up after 3 attempts"):
        download(remote(server), tmp_path / "t.jsonl", HASTY)
    assert not (tmp_path / "t.jsonl").exists()


@pytest.mark.parametrize(
    ("known", "what"),
    [
        ({}, "sha256 is"),
        ({"sha256": "", "git_blob": BLOB}, "git blob is"),
        ({"size": len(CONTENT) + 1}, "512,000 bytes, expected 512,001"),
    ],
)
def test_corrupt_file_is_not_kept(
    server: Server, tmp_path: Path, known: dict[str, object], what: str
) -> None:
    server.plans["/t.jsonl"] = ["corrupt"] * 3
    with pytest.raises(CorruptError, match=f"^t.jsonl: {what}.*not kept"):
        download(remote(server, **known), tmp_path / "t.jsonl", HASTY)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("status", ["403", "404", "410"])
def test_refusal_is_final(server: Server, tmp_path: Path, status: str) -> None:
    server.plans["/t.jsonl"] = [status]
    with pytest.raises(FetchError, match=rf"http.*t\.jsonl: the server answers {status}"):
        download(remote(server), tmp_path / "t.jsonl", HASTY)
    assert len(server.ranges) == 1


def test_server_that_is_not_there(tmp_path: Path) -> None:
    file = RemoteFile("t.jsonl", "http://127.0.0.1:9/t.jsonl", sha256=SHA256)
    with pytest.raises(FetchError, match=r"127.0.0.1:9/t.jsonl: gave up after 3 .*Connection"):
        download(file, tmp_path / "t.jsonl", HASTY)


@pytest.mark.parametrize("size", [None, len(CONTENT)])
def test_complete_rest_is_checked_and_used(
    server: Server, tmp_path: Path, size: int | None
) -> None:
    (tmp_path / "t.jsonl.part").write_bytes(CONTENT)
    download(remote(server, size=size), tmp_path / "t.jsonl", HASTY)
    assert (tmp_path / "t.jsonl").read_bytes() == CONTENT


def test_rest_of_another_file_is_dropped(server: Server, tmp_path: Path) -> None:
    (tmp_path / "t.jsonl.part").write_bytes(b"other" * 200_000)
    download(remote(server), tmp_path / "t.jsonl", HASTY)
    assert (tmp_path / "t.jsonl").read_bytes() == CONTENT


def test_progress_counts_the_bytes_that_are_here(server: Server, tmp_path: Path) -> None:
    server.plans["/t.jsonl"] = ["truncate"]
    told: list[tuple[int, int]] = []
    file = remote(server, size=len(CONTENT))
    download(file, tmp_path / "t.jsonl", HASTY, lambda *counts: told.append(counts))
    assert told == sorted(told)
    assert told[-1] == (len(CONTENT), len(CONTENT))


def test_full_disk_is_noticed_first(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=1_000))
    with pytest.raises(FetchError, match=r"1 MB needed, 0 MB free.*KVSIM_DATA"):
        download(remote(server, size=len(CONTENT)), tmp_path / "t.jsonl", HASTY)
    assert server.ranges == []


def test_git_blob_id_is_gits(tmp_path: Path) -> None:
    path = tmp_path / "hello"
    path.write_bytes(b"hello\n")
    assert git_blob_id(path) == "ce013625030ba8dba906f756967f9e9ca394464a"


# --- the registry --------------------------------------------------------------------------------


def test_registry_names_every_trace_of_the_study() -> None:
    assert {
        "conversation",
        "toolagent",
        "synthetic",
        "mooncake-report",
        "mooncake-report-first",
        "weka",
        "agentx-062126",
    } < set(registry())
    assert known_names()[0] == "sample"


def test_weka_lists_are_complete() -> None:
    entries = registry()
    assert [len(entries[name].files) for name in ("weka", "weka-739")] == [710, 739]
    assert all(len(file.git_blob) == 40 for file in entries["weka-739"].files)


def test_everything_but_the_other_agentx_sets_is_pinned() -> None:
    loose = {entry.name for entry in registry().values() if not all(f.pinned for f in entry.files)}
    optional = {entry.name for entry in registry().values() if entry.optional}
    assert loose == optional | {"mooncake-report-first"}
    assert all(entry.licence for entry in registry().values())


def test_select_by_trace_by_set_and_all() -> None:
    assert [entry.name for entry in select(["agentx"])] == ["agentx-062126"]
    assert [entry.name for entry in select(["weka"])] == ["weka", "weka-739"]
    assert [entry.name for entry in select(["agentx-061326"])] == ["agentx-061326"]
    assert {entry.set for entry in select()} == {"mooncake", "weka", "agentx"}
    assert not any(entry.optional for entry in select())
    with pytest.raises(FetchError, match=r"^moonkake: .*did you mean 'mooncake'\? known: .*weka"):
        select(["moonkake"])


# --- fetching ------------------------------------------------------------------------------------


def test_fetch_downloads_verifies_and_leaves_alone(server: Server, data: Path) -> None:
    write_registry(
        data, {"name": "t", "path": "s/t.jsonl", "url": server.url("/t.jsonl"), "sha256": SHA256}
    )
    said: list[str] = []
    assert fetch(say=said.append, patience=HASTY) == ["t"]
    assert (data / "raw/s/t.jsonl").read_bytes() == CONTENT
    assert said[0].startswith("t: downloaded, verified [Apache-2.0, ")
    assert fetch(say=said.append, patience=HASTY) == ["t"]
    assert "already here" in said[1]
    assert len(server.ranges) == 1


def test_damaged_local_file_is_fetched_again(server: Server, data: Path) -> None:
    write_registry(
        data, {"name": "t", "path": "t.jsonl", "url": server.url("/t.jsonl"), "sha256": SHA256}
    )
    (data / "raw").mkdir()
    (data / "raw/t.jsonl").write_bytes(CONTENT[:-1])
    fetch(say=lambda _: None, patience=HASTY)
    assert (data / "raw/t.jsonl").read_bytes() == CONTENT


def test_one_failure_does_not_stop_the_others(server: Server, data: Path) -> None:
    write_registry(
        data,
        {"name": "gone", "path": "g.jsonl", "url": server.url("/gone"), "sha256": SHA256},
        {"name": "t", "path": "t.jsonl", "url": server.url("/t.jsonl"), "sha256": SHA256},
    )
    with pytest.raises(FetchError, match=r"^not fetched: gone \(http.*/gone: .* 404") as caught:
        fetch(say=lambda _: None, patience=HASTY)
    assert "\n" not in str(caught.value)
    assert (data / "raw/t.jsonl").exists()


def test_hash_of_the_first_download_is_recorded_and_checked(server: Server, data: Path) -> None:
    write_registry(
        data, {"name": "t", "path": "t.jsonl", "url": server.url("/t.jsonl"), "git_blob": BLOB[:8]}
    )
    fetch(say=lambda _: None, patience=HASTY)
    ledger = (data / "raw/recorded-hashes.txt").read_text()
    assert ledger == f"{SHA256}  t.jsonl  {server.url('/t.jsonl')}\n"
    (data / "raw/t.jsonl").unlink()
    server.files["/t.jsonl"] = CONTENT + b"changed"
    with pytest.raises(FetchError, match=f"expected {SHA256}; not kept"):
        fetch(say=lambda _: None, patience=HASTY)
    assert os.listdir(data / "raw") == ["recorded-hashes.txt"]


def test_hub_file_is_pinned_to_its_commit(
    server: Server, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = "c0ffee" * 6 + "c0ff"
    for revision in ("main", commit):
        server.files[f"/datasets/owner/set/resolve/{revision}/traces.jsonl"] = CONTENT
    endpoint = server.url("")
    monkeypatch.setattr("kvsim.traces.fetch.on_hub", partial(downloading.on_hub, endpoint=endpoint))
    write_registry(
        data, {"name": "h", "path": "h/traces.jsonl", "hub": "owner/set", "revision": "main"}
    )
    fetch(say=lambda _: None, patience=HASTY)
    assert (data / "raw/h/traces.jsonl").read_bytes() == CONTENT
    assert (data / "raw/recorded-hashes.txt").read_text() == (
        f"{SHA256}  h/traces.jsonl  {endpoint}/datasets/owner/set/resolve/{commit}/traces.jsonl\n"
    )


def test_hub_that_is_not_there(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "kvsim.traces.fetch.on_hub", partial(downloading.on_hub, endpoint="http://127.0.0.1:9")
    )
    write_registry(data, {"name": "h", "path": "h/t.jsonl", "hub": "owner/set", "revision": "main"})
    with pytest.raises(FetchError, match=r"not fetched: h \(http://127.0.0.1:9/datasets/owner/set"):
        fetch(say=lambda _: None, patience=HASTY)


def folder_of(server: Server, data: Path, count: int) -> list[str]:
    """Publish a folder of small files; write the registry's list of their blob ids."""
    names = [f"trace_{i}.json" for i in range(count)]
    lines = []
    for name in names:
        body = name.encode() * 100
        server.files[f"/traces/{name}"] = body
        blob = hashlib.sha1(f"blob {len(body)}\0".encode() + body).hexdigest()
        lines.append(f"{blob}  traces/{name}\n")
    (data / "blobs.txt").write_text("".join(lines))
    return names


def test_folder_comes_file_by_file_and_shares_what_is_here(server: Server, data: Path) -> None:
    names = folder_of(server, data, 6)
    common = {"url": server.url("/traces"), "blobs": "blobs.txt"}
    write_registry(
        data,
        {"name": "some", "path": "w/some", "without": names[4:], **common},
        {"name": "all", "path": "w/all", "shared_with": "w/some", **common},
    )
    server.plans[f"/traces/{names[0]}"] = ["500"]
    server.plans[f"/traces/{names[1]}"] = ["404"]
    with pytest.raises(FetchError, match=f"not fetched: some .*{names[1]}.*404"):
        fetch(["some"], say=lambda _: None, patience=HASTY)
    with pytest.raises(
        TraceError, match=r"^some: only \d of its 4 files are in .*kvsim fetch some"
    ):
        open_trace("some")
    told: list[tuple[str, int, int]] = []
    fetch(say=lambda _: None, patience=HASTY, progress=lambda *what: told.append(what))
    assert told[-1] == ("all", 6, 6)
    assert sorted(os.listdir(data / "raw/w/some")) == names[:4]
    assert sorted(os.listdir(data / "raw/w/all")) == names
    assert (data / "raw/w/all" / names[0]).samefile(data / "raw/w/some" / names[0])


def test_mirror_is_copied_and_verified(data: Path, tmp_path: Path) -> None:
    mirror = tmp_path / "mirror"
    (mirror / "s").mkdir(parents=True)
    (mirror / "s/t.jsonl").write_bytes(CONTENT)
    write_registry(
        data,
        {"name": "t", "path": "s/t.jsonl", "sha256": SHA256},
        {"name": "u", "path": "s/u.jsonl", "sha256": SHA256},
    )
    said: list[str] = []
    assert fetch(mirror=mirror, say=said.append) == ["t"]
    assert (data / "raw/s/t.jsonl").read_bytes() == CONTENT
    assert "u: not in the mirror" in said[1]
    with pytest.raises(FetchError, match=r"holds none of these traces; expected s/u.jsonl"):
        fetch(["u"], mirror=mirror, say=said.append)


def test_bad_mirror(data: Path, tmp_path: Path) -> None:
    (tmp_path / "t.jsonl").write_bytes(b"wrong")
    write_registry(data, {"name": "t", "path": "t.jsonl", "sha256": SHA256})
    with pytest.raises(FetchError, match=r"not fetched: t \(t.jsonl: sha256 is .* not kept\)"):
        fetch(mirror=tmp_path, say=lambda _: None)
    assert os.listdir(data / "raw") == []
    with pytest.raises(FetchError, match=r"nowhere: no such folder"):
        fetch(mirror=tmp_path / "nowhere", say=lambda _: None)


def test_archive_of_a_mirror_stands_for_the_folder(data: Path, tmp_path: Path) -> None:
    registry_text = (
        '[[trace]]\nname = "w"\nset = "w"\npath = "w/traces"\nlicence = "x"\nblobs = "b.txt"\n'
        f'[trace.archive]\npath = "w/traces.tar.xz"\nsha256 = "{SHA256}"\n'
    )
    (data / "registry.toml").write_text(registry_text)
    assert tomllib.loads(registry_text)
    (data / "b.txt").write_text(f"{BLOB}  traces/trace_1.json\n")
    (tmp_path / "mirror/w").mkdir(parents=True)
    (tmp_path / "mirror/w/traces.tar.xz").write_bytes(CONTENT)
    assert fetch(mirror=tmp_path / "mirror", say=lambda _: None) == ["w"]
    assert os.listdir(data / "raw/w") == ["traces.tar.xz"]
    assert fetch(say=lambda _: None) == ["w"]  # downloads nothing: the archive will do


def test_space_for_all_is_checked_before_the_first(
    server: Server, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_registry(
        data,
        {"name": "t", "path": "t.jsonl", "url": server.url("/t.jsonl"), "sha256": SHA256},
        {"name": "big", "path": "b.jsonl", "url": server.url("/b"), "about": 10**10},
    )
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=10**9))
    with pytest.raises(FetchError, match="10,000 MB needed, 1,000 MB free"):
        fetch(say=lambda _: None)
    assert server.ranges == []


# --- opening by name -----------------------------------------------------------------------------


@pytest.fixture
def named(data: Path) -> Callable[[str], Path]:
    """Return a function that places `text` as the fetched trace `t`."""
    write_registry(data, {"name": "t", "path": "t.jsonl", "sha256": SHA256})

    def place(text: str) -> Path:
        path = data / "raw/t.jsonl"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        return path

    return place


def test_named_trace_is_converted_once(
    named: Callable[[str], Path], data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named(ROWS)
    first = open_trace("t")
    assert (first.name, first.requests) == ("t", 4)
    with monkeypatch.context() as patched:
        patched.setattr(opening.readers, "read", lambda *_, **__: pytest.fail("read again"))
        assert open_trace("t", format=None, keep_repeats=False).requests == 4
    open_trace("t", block_size=512)
    assert len(list((data / "raw/converted").iterdir())) == 2
    named(ROWS * 2)
    assert open_trace("t").requests == 8
    assert len(list((data / "raw/converted").iterdir())) == 2


def test_path_is_read_directly(data: Path, tmp_path: Path) -> None:
    path = tmp_path / "mine.jsonl.gz"
    path.write_bytes(gzip.compress(ROWS.encode()))
    assert open_trace(path).requests == 4
    assert not (data / "raw").exists()


def test_missing_and_misspelt_names(named: Callable[[str], Path]) -> None:
    with pytest.raises(TraceError, match=r"^t: not in .*'kvsim fetch t'.*'make data'"):
        open_trace("t")
    with pytest.raises(
        TraceError,
        match=r"^sampel: no such file and no known trace; "
        r"did you mean 'sample'\? known: sample, t$",
    ):
        open_trace("sampel")


def test_read_only_data_folder_is_no_error(
    named: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    named(ROWS)

    def refuse(*_: object) -> None:
        raise PermissionError("read-only")

    monkeypatch.setattr(Trace, "save", refuse)
    assert open_trace("t").requests == 4
