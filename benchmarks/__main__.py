"""Speed beside libcachesim, as ratios within one run (`make bench`).

Each measurement is a process of its own and imports what it measures, so that peak memory is
its own. libcachesim replays the stream of blocks, root first, with its own reader; it knows
neither leaves nor pins.
"""

import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from kvsim.traces.trace import Trace, load

REPEATS = 5
WINDOW = 8 * 3600.0
CAPACITY = 50_000
POLICIES = ("fifo", "lfu", "belady", "liveness")
ORACLE = np.dtype([("time", "<u4"), ("object", "<u8"), ("size", "<u4"), ("next", "<i8")])


def best(work: Callable[[], object]) -> float:
    """Return the shortest of several times, in seconds; the first run compiles and is not timed."""
    work()
    times = []
    for _ in range(REPEATS):
        started = time.perf_counter()
        work()
        times.append(time.perf_counter() - started)
    return min(times)


def peak_megabytes() -> float:
    """Return this process's peak memory; `getrusage` would include the parent's before exec."""
    status = Path("/proc/self/status").read_text().split()
    return int(status[status.index("VmHWM:") + 1]) * 1024 / 1e6


def measure_read(path: str) -> dict[str, float]:
    from kvsim.traces.readers import read

    started = time.perf_counter()
    trace = read(path)
    seconds = time.perf_counter() - started
    tree = sum(column.nbytes for column in trace.tree)
    return {
        "seconds": seconds,
        "peak_mb": peak_megabytes(),
        "labels_mb": 8 * trace.distinct_blocks / 1e6,
        "tree_mb": tree / 1e6,
        "requests": trace.requests,
    }


def measure_engine(path: str) -> dict[str, float]:
    from kvsim.cache.bounds import opt
    from kvsim.cache.curves import lru_curve
    from kvsim.cache.sweep import simulate
    from kvsim.traces.arrivals import arrange

    whole = load(path)
    trace = arrange(whole, WINDOW, 0)
    times = {
        "opens in": best(lambda: load(path)),
        "lru": best(lambda: simulate(trace, "lru", CAPACITY)),
        "lru curve": best(lambda: lru_curve(trace)),
        "opt": best(lambda: opt(trace, CAPACITY)),
    }
    for policy in POLICIES:
        times[policy] = best(lambda policy=policy: simulate(trace, policy, CAPACITY))  # type: ignore[misc]
    return times


def measure_compile(path: str) -> dict[str, float]:
    """Time the first run of one policy; the caller gives an empty cache of compiled code."""
    from kvsim.cache.sweep import simulate
    from kvsim.traces.arrivals import arrange

    trace = arrange(load(path), WINDOW, 0)
    started = time.perf_counter()
    simulate(trace, "lru", CAPACITY)
    return {"seconds": time.perf_counter() - started}


def measure_libcachesim(path: str) -> dict[str, float]:
    import libcachesim

    reader = libcachesim.TraceReader(path, libcachesim.TraceType.ORACLE_GENERAL_TRACE)
    cache = libcachesim.LRU(CAPACITY, hashpower=18)
    started = time.perf_counter()
    miss, _ = cache.process_trace(reader)
    return {"seconds": time.perf_counter() - started, "hit_ratio": 1 - miss}


def block_stream(trace: Trace) -> np.ndarray:
    """Return uint64[block accesses]: the blocks of all requests in order, root first."""
    stream = np.empty(trace.blocks, dtype=np.uint64)
    first = np.cumsum(trace.tree.length.astype(np.int64)) - trace.tree.length
    at = np.cumsum(trace.chain_blocks)
    for end, node in zip(at.tolist(), trace.terminal.tolist(), strict=True):
        while node >= 0:
            length = int(trace.tree.length[node])
            stream[end - length : end] = np.arange(first[node], first[node] + length)
            end -= length
            node = int(trace.tree.parent[node])
    return stream


def in_own_process(
    task: str, *arguments: str, environment: dict[str, str] | None = None
) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks", task, *arguments]
    run = subprocess.run(
        command,
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, **(environment or {})},
    )
    figures: dict[str, float] = json.loads(run.stdout.splitlines()[-1])
    return figures


TASKS = {
    "read": measure_read,
    "engine": measure_engine,
    "compile": measure_compile,
    "libcachesim": measure_libcachesim,
}


def ten_times(source: Path, folder: Path) -> Path:
    """Write the archive's sessions ten times over under other names and ids; return the archive."""
    target = folder / "ten.tar"
    with tarfile.open(target, "w") as out:
        for copy in range(10):
            with tarfile.open(source) as archive:
                for member in archive:
                    file = archive.extractfile(member)
                    if file is None or not member.name.endswith(".json"):
                        continue
                    text = file.read()
                    # Another first time makes the session another one, not a repeat.
                    text = text.replace(b'"t":0.0', f'"t":0.{copy:03d}'.encode(), 1)
                    member.name = f"{copy}-{Path(member.name).name}"
                    member.size = len(text)
                    out.addfile(member, io.BytesIO(text))
    return target


def main() -> None:
    """Measure everything and print one table."""
    from rich.console import Console
    from rich.table import Table

    from kvsim.traces import opening, registry
    from kvsim.traces.arrivals import arrange

    console = Console(width=110)
    name = "weka" if (registry.raw_folder() / "weka/traces.tar.xz").exists() else registry.SAMPLE
    source = (
        registry.raw_folder() / "weka/traces.tar.xz"
        if name == "weka"
        else registry.committed("sample.tar.xz")
    )
    trace = opening.open_trace(name, window=None)
    with tarfile.open(source) as archive:
        megabytes = sum(member.size for member in archive) / 1e6
    table = Table("what", "figure", "goal", title=f"{name}: {trace.blocks:,} block accesses")
    with tempfile.TemporaryDirectory() as name_of_folder:
        folder = Path(name_of_folder)
        trace.save(folder / "trace.npz")
        records = np.zeros(trace.blocks, dtype=ORACLE)
        arranged = arrange(trace, WINDOW, 0)
        records["object"], records["size"], records["next"] = block_stream(arranged), 1, -1
        records.tofile(folder / "stream.oracle")
        del records
        compiling = in_own_process(
            "compile",
            str(folder / "trace.npz"),
            environment={"NUMBA_CACHE_DIR": str(folder / "empty")},
        )
        table.add_row("compile on first use", f"{compiling['seconds']:.1f} s", "5 s")
        in_own_process("read", str(source))
        reading = in_own_process("read", str(source))
        rate = megabytes / reading["seconds"]
        table.add_row("reading JSON from .tar.xz", f"{rate:.0f} MB/s", "100 MB/s")
        table.add_row("peak memory of it", f"{reading['peak_mb']:.0f} MB", "500 MB")
        ten = in_own_process("read", str(ten_times(source, folder)))
        if ten["requests"] != 10 * reading["requests"]:
            raise SystemExit(f"of ten copies {ten['requests']:,} requests were read")
        own = ten["tree_mb"] + ten["labels_mb"]
        table.add_row(
            "ten times over, peak", f"{ten['peak_mb']:.0f} MB", f"500 MB + 2 x {own:.0f} MB"
        )
        peer = in_own_process("libcachesim", str(folder / "stream.oracle"))
        speed = trace.blocks / peer["seconds"]
        table.add_row("libcachesim LRU", f"{speed / 1e6:.1f} M accesses/s", "")
        times = in_own_process("engine", str(folder / "trace.npz"))
        table.add_row("saved trace opens", f"{times.pop('opens in'):.3f} s", "0.3 s")
        goals = {"lru": 100, "lru curve": 200}
        for what, seconds in times.items():
            ratio = peer["seconds"] / seconds
            goal = f"{goals[what]} x" if what in goals else ""
            table.add_row(f"{what}, 50k", f"{seconds * 1e3:.0f} ms, {ratio:.0f} x", goal)
        for what in goals:
            ratio = peer["seconds"] / (times[what] + reading["seconds"])
            table.add_row(f"{what}, reading and tree too", f"{ratio:.1f} x", "")
    console.print(table)
    console.print("x: times libcachesim's LRU on the same stream, in this run.")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(json.dumps(TASKS[sys.argv[1]](*sys.argv[2:])))
    else:
        main()
