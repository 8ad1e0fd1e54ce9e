"""Where traces are read from: files, pipes and standard input, plain and compressed."""

import bz2
import gzip
import hashlib
import io
import lzma
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from kvsim.traces.readers import READERS, read
from kvsim.traces.readers.source import CHUNK, zstd
from kvsim.traces.trace import Trace, TraceError
from tests.trace_files import agents, archive, columns, jsonl, mooncake_row, session, weka_request

COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "plain": bytes,
    "gz": gzip.compress,
    "xz": lzma.compress,
    "bz2": bz2.compress,
    "zst": zstd.compress,
}
CHAT = {"chat_id": 7, "parent_chat_id": -1, "input_length": 30, "hash_ids": [1, 2], "type": "text"}


def saved(folder: Path) -> bytes:
    trace = read(archive(folder / "source.tar.xz", agents()))
    trace.save(folder / "saved.npz")
    return (folder / "saved.npz").read_bytes()


# What each reader reads, by what it is, as bytes that are not compressed.
CONTENTS: dict[str, Callable[[Path], bytes]] = {
    "mooncake rows": lambda _: jsonl([mooncake_row([1, i], 3000 * i) for i in range(20)]).encode(),
    "bailian rows": lambda _: jsonl([CHAT | {"timestamp": 0.5}, CHAT | {"timestamp": 60}]).encode(),
    "weka lines": lambda _: jsonl([agents()[name] for name in sorted(agents())]).encode(),
    "weka document": lambda _: lzma.decompress(DOCUMENT),
    "weka archive": lambda folder: lzma.decompress(
        archive(folder / "source.tar.xz", agents()).read_bytes()
    ),
    "kvsim": saved,
}
DOCUMENT = lzma.compress(
    b'{\n "id": "a",\n "requests": [\n  {"t": 0, "in": 64, "hash_ids": [1]},\n'
    b'  {"t": 70, "in": 128, "hash_ids": [1, 2]}\n ]\n}\n'
)


def through_fifo(path: Path, data: bytes, **options: str) -> Trace:
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_bytes, args=(data,))
    writer.start()
    try:
        return read(path, **options)
    finally:
        writer.join()


def test_every_reader_has_contents() -> None:
    assert {content.split()[0] for content in CONTENTS} == READERS.keys()


@pytest.mark.parametrize("compression", COMPRESS)
@pytest.mark.parametrize("content", CONTENTS)
def test_the_same_trace_from_file_pipe_and_standard_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str, compression: str
) -> None:
    plain = CONTENTS[content](tmp_path)
    (tmp_path / "plain").write_bytes(plain)
    expected = read(tmp_path / "plain")
    assert expected.requests > 1
    data = COMPRESS[compression](plain)
    (tmp_path / "misnamed.txt").write_bytes(data)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data)))
    found = {
        "misnamed": read(tmp_path / "misnamed.txt"),
        "fifo": through_fifo(tmp_path / "fifo", data),
        "stdin": read("-"),
    }
    for name, trace in found.items():
        assert columns(trace) == columns(expected)
        assert [column.tolist() for column in trace.tree] == [c.tolist() for c in expected.tree]
        assert trace.notes == expected.notes
        if content != "kvsim":
            assert trace.name == name
            assert trace.source_hash == hashlib.sha256(data).hexdigest()


def test_a_real_pipe(tmp_path: Path) -> None:
    rows = jsonl([mooncake_row([i], 3000 * i) for i in range(50)])
    code = "from kvsim.traces.readers import read; print(read('-').requests)"
    writer = f"import gzip, sys; sys.stdout.buffer.write(gzip.compress({rows!r}.encode()))"
    with subprocess.Popen([sys.executable, "-c", writer], stdout=subprocess.PIPE) as source:
        run = subprocess.run(
            [sys.executable, "-c", code], stdin=source.stdout, capture_output=True, check=True
        )
    assert run.stdout == b"50\n"


def test_lines_longer_than_the_buffers(tmp_path: Path) -> None:
    chain = list(range(10**9, 10**9 + CHUNK // 4))
    rows = [session([weka_request(chain)], name) for name in ("a", "bb")]
    path = tmp_path / "long.zst"
    path.write_bytes(zstd.compress(jsonl(rows).encode()))
    trace = read(path, keep_repeats=True)
    assert trace.chain_blocks.tolist() == 2 * [len(chain)]


@pytest.mark.parametrize("compression", [name for name in COMPRESS if name != "plain"])
@pytest.mark.parametrize("content", ["mooncake rows", "weka lines", "weka document"])
def test_cut_off_compressed_lines_name_the_line(
    tmp_path: Path, content: str, compression: str
) -> None:
    noise = np.random.default_rng(0).integers(2**62, size=2000).tolist()
    if content == "mooncake rows":
        text = jsonl([mooncake_row([i], 3000 * i) for i in noise])
    elif content == "weka lines":
        text = jsonl([session([weka_request([i])]) for i in noise])
    else:
        calls = ",\n".join(f'{{"t": 0, "in": 64, "hash_ids": [{i}]}}' for i in noise)
        text = f'{{\n"requests": [\n{calls}]\n}}'
    whole = COMPRESS[compression](text.encode())
    # These two unpack a hundred kilobytes or none.
    line = r"\d+" if compression in ("bz2", "zst") else r"\d\d+"
    for piece in (whole[: len(whole) // 2], whole[:-3]):
        (tmp_path / "cut").write_bytes(piece)
        with pytest.raises(TraceError, match=rf"cut:{line}: .*cut off or damaged"):
            read(tmp_path / "cut")
    with pytest.raises(TraceError, match=rf"fifo:{line}: .*cut off or damaged"):
        through_fifo(tmp_path / "fifo", whole[: len(whole) // 2])


@pytest.mark.parametrize("compression", [name for name in COMPRESS if name != "plain"])
def test_damaged_bytes_are_an_error(tmp_path: Path, compression: str) -> None:
    rows = [mooncake_row([i], 3000 * i) for i in range(3000)]
    data = bytearray(COMPRESS[compression](jsonl(rows).encode()))
    for at in range(len(data) // 2, len(data) // 2 + 40):
        data[at] ^= 0xFF
    (tmp_path / "damaged").write_bytes(data)
    with pytest.raises(TraceError, match=r"damaged:\d+: "):
        read(tmp_path / "damaged")


@pytest.mark.parametrize("compression", COMPRESS)
def test_cut_off_archives_are_an_error(tmp_path: Path, compression: str) -> None:
    plain = CONTENTS["weka archive"](tmp_path)
    end = len(plain.rstrip(b"\0"))
    between = end // 512 * 512 + 512  # after the last session, before the end of the archive
    for cut in (end // 2, end - 5, between):
        (tmp_path / "cut").write_bytes(COMPRESS[compression](plain[:cut]))
        with pytest.raises(TraceError, match=r"cut: cut off or damaged after traces/"):
            read(tmp_path / "cut")
    if compression != "plain":
        (tmp_path / "cut").write_bytes(COMPRESS[compression](plain)[:-12])
        with pytest.raises(TraceError, match=r"cut(:1)?: .*cut off or damaged"):
            read(tmp_path / "cut")


def test_an_archive_with_a_damaged_header_in_it_is_an_error(tmp_path: Path) -> None:
    plain = bytearray(CONTENTS["weka archive"](tmp_path))
    plain[plain.index(b"traces/a.json")] ^= 1
    (tmp_path / "damaged").write_bytes(plain)
    with pytest.raises(TraceError, match=r"damaged: cut off or damaged after traces/b\.json"):
        read(tmp_path / "damaged")


def test_a_cut_off_document_names_its_last_line(tmp_path: Path) -> None:
    text = lzma.decompress(DOCUMENT)
    (tmp_path / "cut.json").write_bytes(text[: text.index(b"128")])
    with pytest.raises(TraceError, match=r"cut\.json:5: .*cut off"):
        read(tmp_path / "cut.json")
    (tmp_path / "cut.json").write_bytes(text.replace(b'"in": 128', b'"in" 128'))
    with pytest.raises(TraceError, match=r"cut\.json:5: .*damaged"):
        read(tmp_path / "cut.json")


def test_a_cut_off_saved_trace_is_named_as_it_came(tmp_path: Path) -> None:
    data = bytearray(saved(tmp_path))
    cut = bytes(data[:-30])
    data[len(data) // 2] ^= 0xFF
    for content in (cut, bytes(data)):
        (tmp_path / "file").write_bytes(content)
        with pytest.raises(TraceError, match=r"file: .*saved.*"):
            read(tmp_path / "file")
        (tmp_path / "fifo").unlink(missing_ok=True)
        with pytest.raises(TraceError, match=r"fifo: .*saved.*"):
            through_fifo(tmp_path / "fifo", content)


def test_an_empty_pipe_is_a_trace_without_requests(tmp_path: Path) -> None:
    assert through_fifo(tmp_path / "fifo", b"").requests == 0


def test_progress_of_a_pipe_has_no_end(tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    data = jsonl([mooncake_row([1]), mooncake_row([1])]).encode()
    through_fifo(tmp_path / "fifo", data, progress=lambda *counts: told.append(counts))  # type: ignore[arg-type]
    assert told[-1] == (len(data), 0)
