"""Trace files for tests of readers: rows, sessions, containers."""

import io
import json
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from kvsim.traces.trace import REQUEST_COLUMNS, Trace

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


def nested(marker: float, *inner: float) -> dict:
    requests = [weka_request([i + 1], t) for i, t in enumerate(inner)]
    return {"t": marker, "type": "subagent", "requests": requests}


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
