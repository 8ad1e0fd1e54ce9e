"""Other people's simulators on the conversation trace, where they are installed (extra `bench`).

libcachesim knows no prefixes: its cache is the stream of blocks, root first, an access a request.
On that stream every block is a leaf, so a policy that agrees there is the published rule, and
what the leaf rule changes is elsewhere. Known differences, so not compared: libcachesim's SLRU
has four segments, its W-TinyLFU a sketch, its LFU-DA other keys (its GDSF has those of the paper),
its LIRS stacks; its Hyperbolic, LHD and LeCaR draw at random.
"""

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kvsim.cache.bounds import opt
from kvsim.cache.engine import Switches, replay
from kvsim.cache.policies import POLICIES
from kvsim.cache.result import Result
from kvsim.cache.sweep import simulate
from kvsim.traces.trace import Trace, Tree
from tests.traces import real

SIZES = (1_000, 10_000, 30_000)
pytestmark = [pytest.mark.real, pytest.mark.slow]


@pytest.fixture(scope="module")
def conversation() -> Trace:
    return real("conversation")


@cache
def block_stream(trace: Trace) -> Trace:
    """Return the trace with every block access, root first, as a request of its own."""
    blocks = trace.expand()
    parent = blocks.tree.parent.tolist()
    chains = []
    for node in blocks.terminal.tolist():
        chain = []
        while node >= 0:
            chain.append(node)
            node = parent[node]
        chains += reversed(chain)
    count, distinct = len(chains), len(parent)
    ones = np.ones(distinct, dtype=np.int32)
    return Trace(
        name="blocks",
        block_size=1,
        source_hash=trace.source_hash,
        arrival=np.arange(count, dtype=np.float64),
        order=np.arange(count, dtype=np.int32),
        session=np.full(count, -1, dtype=np.int32),
        input_tokens=np.ones(count, dtype=np.int64),
        output_tokens=np.zeros(count, dtype=np.int64),
        service=np.full(count, np.nan),
        subagent=np.zeros(count, dtype=np.bool_),
        terminal=np.array(chains, dtype=np.int32),
        tree=Tree(-ones, ones, 0 * ones, (0 * ones).astype(np.int64), ones),
    )


@pytest.fixture(scope="module")
def stream_file(conversation: Trace, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("stream") / "blocks.csv"
    blocks = block_stream(conversation).terminal
    rows = np.column_stack([np.arange(len(blocks)), blocks, np.ones_like(blocks)])
    np.savetxt(path, rows, fmt="%d", delimiter=",")
    return path


# Our policy and parameters, and the class of libcachesim that must hit as often.
SAME: list[tuple[str, dict[str, Any], str]] = [
    ("lru", {}, "LRU"),
    ("fifo", {}, "FIFO"),
    ("lfu", {}, "LFU"),
    ("sieve", {}, "Sieve"),
    ("2q", {}, "TwoQ"),
    ("arc", {}, "ARC"),
    ("s3-fifo", {"fill_main": True}, "S3FIFO"),
    ("lru-k", {"history": False}, "LRUK"),
]


@pytest.mark.parametrize("capacity", SIZES)
@pytest.mark.parametrize(("name", "parameters", "peer"), SAME)
def test_hits_as_libcachesim(
    conversation: Trace,
    stream_file: Path,
    name: str,
    parameters: dict[str, Any],
    peer: str,
    capacity: int,
) -> None:
    theirs = libcachesim_hits(stream_file, peer, capacity, conversation.blocks)
    ours = replay(block_stream(conversation), POLICIES[name], capacity, parameters=parameters)
    assert ours.hit_blocks.sum() == theirs


@pytest.mark.parametrize("capacity", SIZES)
def test_lfu_da_hits_as_libcachesims_gdsf(
    conversation: Trace, stream_file: Path, capacity: int
) -> None:
    # With one size and one cost GDSF is LFU-DA; equal keys are ordered otherwise there.
    theirs = libcachesim_hits(stream_file, "GDSF", capacity, conversation.blocks)
    ours = replay(block_stream(conversation), POLICIES["lfu-da"], capacity).hit_blocks.sum()
    assert abs(ours - theirs) <= 3


def libcachesim_hits(path: Path, peer: str, capacity: int, accesses: int) -> int:
    """Return the hits of a cache of libcachesim's on the stream in `path`."""
    libcachesim = pytest.importorskip("libcachesim", reason="the extra `bench` is not installed")
    settings = libcachesim.ReaderInitParam(
        ignore_obj_size=True,
        has_header=False,
        has_header_set=True,
        delimiter=",",
        obj_id_is_num=True,
        obj_id_is_num_set=True,
    )
    settings.time_field, settings.obj_id_field, settings.obj_size_field = 1, 2, 3
    reader = libcachesim.TraceReader(
        trace=str(path), trace_type=libcachesim.TraceType.CSV_TRACE, reader_init_params=settings
    )
    store = getattr(libcachesim, peer)(cache_size=capacity, hashpower=18)
    missed, _ = store.process_trace(reader)
    return round((1 - missed) * accesses)


@pytest.fixture(scope="module")
def plan(conversation: Trace) -> Any:
    """Return kvcache-simulator's form of the trace, to be measured from its middle on.

    It measures only once the cache was full before, so the first half cannot be had.
    """
    pytest.importorskip("kvcache_sim", reason="the extra `bench` is not installed")
    from kvcache_sim.plan import build_execution_plan
    from kvcache_sim.trace import TraceData

    blocks = block_stream(conversation)
    lengths = conversation.chain_blocks
    ends = np.cumsum(lengths)
    offset = np.arange(ends[-1]) - np.repeat(ends - lengths, lengths)
    left = np.repeat(conversation.input_tokens, lengths) - offset * conversation.block_size
    data = TraceData(
        ids=blocks.terminal.tolist(),
        tokens=np.minimum(left, conversation.block_size).tolist(),
        request_starts=[0, *ends.tolist()],
        block_size=conversation.block_size,
        request_count=conversation.requests,
        unique_raw_blocks=conversation.distinct_blocks,
        total_input_tokens=int(conversation.input_tokens.sum()),
        average_input_tokens=float(conversation.input_tokens.mean()),
        parse_errors=0,
        skipped_records=0,
    )
    return build_execution_plan(data)


@pytest.mark.parametrize("capacity", SIZES)
@pytest.mark.parametrize("name", ["lru", "fifo", "optimal"])
def test_hits_as_kvcache_simulator(
    conversation: Trace, plan: Any, name: str, capacity: int
) -> None:
    from kvcache_sim.policies import simulate_policy

    theirs = simulate_policy(plan, name, capacity)
    result = kvcache_simulators(name, conversation, capacity)
    assert result.hit_tokens[plan.warmup_requests :].sum() == theirs.hitTokens


def kvcache_simulators(name: str, trace: Trace, capacity: int) -> Result:
    """Return our run under the rules of kvcache-simulator: FIFO alone is flat and has no pins."""
    if name == "optimal":
        return opt(trace, capacity)
    flat = Switches(eviction="flat", pinning=False)
    switches = flat if name == "fifo" else Switches()
    return replay(trace, POLICIES[name], capacity, switches=switches)


@pytest.mark.parametrize(("capacity", "share"), [(14_563, 0.266), (58_254, 0.383)])
def test_warm_up_gives_the_ratios_that_kvcache_simulator_prints(
    conversation: Trace, plan: Any, capacity: int, share: float
) -> None:
    from kvcache_sim.policies import simulate_policy

    theirs = simulate_policy(plan, "lru", capacity)
    ours = simulate(conversation, "lru", capacity, measure_from=plan.warmup_requests).row()
    assert ours["hit_tokens"] == theirs.hitTokens
    half = simulate(conversation, "lru", capacity, measure_from="50%").row()
    assert round(half["hit_token_ratio"], 3) == share
    best = simulate_policy(plan, "optimal", capacity)
    bound = simulate(conversation, "opt", capacity, measure_from=plan.warmup_requests).row()
    assert (
        bound["hit_blocks"] >= opt(conversation, capacity).hit_blocks[plan.warmup_requests :].sum()
    )
    assert bound["hit_tokens"] >= best.hitTokens
