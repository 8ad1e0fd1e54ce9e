"""The radix tree, the ids it is built from, and traces cut out of traces: properties."""

import json
from dataclasses import replace
from itertools import combinations, takewhile

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from kvsim.cache.reference import Request
from kvsim.traces.arrivals import arrange, cut
from kvsim.traces.radix import RadixBuilder
from kvsim.traces.readers.ids import BlockIds
from kvsim.traces.trace import SESSION, Trace, TraceError, accesses_by_node, load
from tests.naive import identities, uses_of
from tests.strategies import path, to_trace, traces

property_test = pytest.mark.property


def node_paths(trace: Trace) -> list[list[tuple[int, int]]]:
    """Return each request's chain as (node, block within the node), root first."""
    tree = trace.tree
    chains = []
    for terminal in trace.terminal:
        nodes = path(int(terminal), tree.parent, tree.length)
        chains.append([(node, i - int(tree.depth[node])) for i, node in enumerate(nodes)])
    return chains


@property_test
@given(requests=traces())
def test_chains_share_what_their_ids_share(requests: tuple[Request, ...]) -> None:
    trace = to_trace(requests)
    chains = list(zip(node_paths(trace), map(identities, requests), strict=True))
    for (blocks, ids), (other_blocks, other_ids) in combinations(chains, 2):
        assert shared(blocks, other_blocks) == shared(ids, other_ids)
    assert trace.distinct_blocks == len(uses_of(requests))


def shared(one: list, other: list) -> int:
    """Return the length of the common prefix."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


@property_test
@given(requests=traces())
def test_tree_is_as_small_as_can_be_and_adds_up(requests: tuple[Request, ...]) -> None:
    trace = to_trace(requests)
    tree = trace.tree
    for node in range(len(tree.parent)):
        parent = tree.parent[node]
        assert parent < node
        assert tree.length[node] >= 1
        branches = np.count_nonzero(tree.parent == node)
        assert branches != 1 or node in trace.terminal
        if parent >= 0:
            assert tree.depth[node] == tree.depth[parent] + tree.length[parent]
    assert trace.chain_blocks.tolist() == [len(request.chain) for request in requests]
    assert (trace.unblocked_tokens >= 0).all()


@property_test
@given(requests=traces())
def test_seen_blocks_and_accesses(requests: tuple[Request, ...]) -> None:
    trace = to_trace(requests)
    uses = uses_of(requests)
    for row, request in enumerate(requests):
        assert trace.seen_blocks[row] == sum(uses[b][0] < row for b in identities(request))
    start, rows = accesses_by_node(trace)
    for request, blocks in zip(requests, node_paths(trace), strict=True):
        for (node, _), block in zip(blocks, identities(request), strict=True):
            assert rows[start[node] : start[node + 1]].tolist() == uses[block]


@property_test
@given(requests=traces(), data=st.data())
def test_selected_requests_are_a_trace_of_their_own(
    requests: tuple[Request, ...], data: st.DataObject
) -> None:
    keep = data.draw(st.lists(st.booleans(), min_size=len(requests), max_size=len(requests)))
    selected = to_trace(requests).select(np.array(keep, dtype=bool))
    alone = to_trace([request for request, kept in zip(requests, keep, strict=True) if kept])
    for column in ("arrival", "session", "chain_blocks", "chain_tokens", "seen_blocks"):
        assert getattr(selected, column).tolist() == getattr(alone, column).tolist()
    assert selected.distinct_blocks == alone.distinct_blocks
    assert (selected.tree.parent < np.arange(len(selected.tree.parent))).all()


@property_test
@given(requests=traces())
def test_saved_and_loaded(
    requests: tuple[Request, ...], tmp_path_factory: pytest.TempPathFactory
) -> None:
    trace = to_trace(requests)
    file = tmp_path_factory.getbasetemp() / "property.npz"
    trace.save(file)
    again = load(file)
    for one, other in zip(trace.tree, again.tree, strict=True):
        assert one.dtype == other.dtype
        assert one.tolist() == other.tolist()
    assert again.terminal.tolist() == trace.terminal.tolist()
    assert again.arrival.tolist() == trace.arrival.tolist()


def test_growing_tree_keeps_every_block() -> None:
    rng = np.random.default_rng(1)
    builder = RadixBuilder(16)
    chains: list[np.ndarray] = []
    for _ in range(3000):
        base = chains[rng.integers(len(chains))] if chains else np.empty(0, dtype=np.int64)
        new = rng.integers(-(2**63), 2**63 - 1, rng.integers(1, 9))
        chains.append(np.concatenate([base[: rng.integers(len(base) + 1)], new])[:200])

    def add(chains: list[np.ndarray]) -> list[int]:
        lengths = np.array([len(chain) for chain in chains])
        return builder.add(np.concatenate(chains), lengths, np.full(len(chains), 16)).tolist()

    terminals = add(chains[:5]) + add(chains[5:])
    tree, index = builder.finish()
    distinct = {tuple(chain[: i + 1]) for chain in chains for i in range(len(chain))}
    assert tree.length.sum() == len(distinct)
    final = index[np.array(terminals)]
    assert (tree.depth + tree.length)[final].tolist() == [len(chain) for chain in chains]
    assert [add([chain])[0] for chain in chains] == terminals


# --- block ids ----------------------------------------------------------------------------------

spaces = st.sampled_from(["", " ", "\n", " \t"])


def parse(parser: BlockIds, text: str) -> np.ndarray:
    ids, lengths = parser.parse([text.encode()], ["here"])
    assert lengths.tolist() == [len(ids)]
    return ids


@property_test
@given(
    ids=st.one_of(
        st.lists(st.integers(0, 2**64 - 1)),
        st.lists(st.integers(-(2**63), 2**63 - 1)),
        st.lists(st.sampled_from([0, 1, 2**31, 2**32, 2**32 + 1, 2**63 - 1, 2**63, 2**64 - 1])),
    ),
    space=spaces,
)
def test_integer_ids_equal_json(ids: list[int], space: str) -> None:
    text = f"[{space}" + f"{space},{space}".join(map(str, ids)) + f"{space}]"
    assert json.loads(text) == ids
    parsed = parse(BlockIds(), text)
    assert parsed.dtype == np.int64
    assert [block % 2**64 for block in parsed.tolist()] == [block % 2**64 for block in ids]


# A number of a few digits, long runs of which two arrays may have in common or all but.
runs = st.builds(
    lambda first, length, cut, more: [*range(first, first + length)][: length - cut] + more,
    st.sampled_from([0, 7, 95, 2**62]),
    st.integers(0, 90),
    st.integers(0, 2),
    st.lists(st.integers(-3, 10**6), max_size=3),
)


@property_test
@given(arrays=st.lists(runs, min_size=1, max_size=6), space=spaces)
def test_arrays_parsed_together_equal_json(arrays: list[list[int]], space: str) -> None:
    texts = [f"[{f',{space}'.join(map(str, ids))}{space}]" for ids in arrays]
    ids, lengths = BlockIds().parse([text.encode() for text in texts], texts)
    assert lengths.tolist() == [len(array) for array in arrays]
    assert ids.tolist() == [block for array in arrays for block in array]


def test_the_array_with_wrong_ids_is_named_among_others() -> None:
    places = ["here", "there", "elsewhere"]
    for arrays, message in (
        ([b"[1]", b"[2, true]", b"[3]"], "there: hash_ids must be an array"),
        ([b"[1]", b"[]", b'["a"]'], "elsewhere: some block ids are integers"),
        ([b"[]", b'["a"]', b"[1]"], "elsewhere: some block ids are integers"),
        ([b"[-1]", b"[9223372036854775808]", b"[3]"], "there: block ids both below 0"),
    ):
        with pytest.raises(TraceError, match=message):
            BlockIds().parse(arrays, places)
    ids, lengths = BlockIds().parse([b'["a","b"]', b"[]", b'["b"]'], places)
    assert (ids.tolist(), lengths.tolist()) == ([0, 1, 1], [2, 0, 1])


@property_test
@given(ids=st.lists(st.text(max_size=3), min_size=1))
def test_string_ids_are_equal_where_the_strings_are(ids: list[str]) -> None:
    parser = BlockIds()
    codes = parse(parser, json.dumps(ids)).tolist()
    assert len(set(codes)) == len(set(ids))
    assert dict(zip(ids, codes, strict=True)) == dict(
        zip(ids, parse(parser, json.dumps(ids)).tolist(), strict=True)
    )


values = st.one_of(
    st.none(),
    st.booleans(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.integers(-(2**65), -(2**63) - 1),
    st.integers(2**64, 2**66),
    st.lists(st.integers(), max_size=2),
    st.dictionaries(st.text(max_size=2), st.integers(), max_size=1),
)


@property_test
@given(before=st.lists(st.integers(0, 9), max_size=2), value=values)
def test_other_values_are_refused(before: list[int], value: object) -> None:
    bare = [] if isinstance(value, list) else [value, 1234, "1234"]
    for content in ([*before, value], [value, *before], *bare):
        with pytest.raises(TraceError):
            parse(BlockIds(), json.dumps(content))


# --- arrivals -----------------------------------------------------------------------------------


@property_test
@given(requests=traces(), window=st.sampled_from([0.0, 1.0, 100.0]), seed=st.integers(0, 5))
def test_interleaving_shifts_whole_sessions(
    requests: tuple[Request, ...], window: float, seed: int
) -> None:
    assume(requests and requests[0].session >= 0)
    trace = replace(to_trace(requests), clock=SESSION)
    assert trace.sessions is not None
    arranged = arrange(trace, window, seed)
    again = arrange(trace, window, seed)
    assert arranged.arrival.tolist() == again.arrival.tolist()
    assert (np.diff(arranged.arrival) >= 0).all()
    for session in np.unique(trace.session):
        before, after = trace.session == session, arranged.session == session
        shift = arranged.arrival[after] - trace.arrival[before]
        assert np.allclose(shift, shift[0])
        assert 0 <= shift[0] < max(window, 1e-9)
        assert arranged.order[after].tolist() == trace.order[before].tolist()
        assert arranged.chain_blocks[after].tolist() == trace.chain_blocks[before].tolist()
    some = arrange(trace, window, seed, sessions=trace.sessions - 1 or 1)
    assert some.sessions == (trace.sessions - 1 or 1)
    # A session starts at the same time whether or not others are in the sample.
    kept = np.isin(arranged.session, some.session)
    assert some.arrival.tolist() == arranged.arrival[kept].tolist()


def test_another_seed_gives_other_starts() -> None:
    requests = [Request(0.0, (1,), 4, session=number) for number in range(20)]
    trace = replace(to_trace(requests), clock=SESSION)
    starts = [arrange(trace, 60.0, seed).arrival.tolist() for seed in (0, 1)]
    assert starts[0] != starts[1]


def test_arrivals_that_make_no_sense_are_refused() -> None:
    requests = [Request(0.0, (1,), 4, session=0), Request(1.0, (1,), 4, session=1)]
    trace = replace(to_trace(requests), clock=SESSION)
    with pytest.raises(TraceError, match="3 sessions asked for; random has 2"):
        arrange(trace, 1.0, 0, sessions=3)
    with pytest.raises(TraceError, match=r"duration -1\.0: not a time"):
        arrange(trace, -1.0, 0)
    with pytest.raises(TraceError, match="window is inf; sessions need a finite time"):
        arrange(trace, "inf", 0)
    with pytest.raises(TraceError, match="drawn already"):
        arrange(arrange(trace, 1.0, 0), 1.0, 1)
    with pytest.raises(TraceError, match="1 sessions asked for; random has 0"):
        arrange(to_trace([Request(0.0, (1,), 4)]), 1.0, 0, sessions=1)


def test_recorded_arrivals_are_kept() -> None:
    requests = [Request(3.0, (1,), 4, session=0), Request(5.0, (1,), 4, session=1)]
    trace = to_trace(requests)
    assert arrange(trace, 100.0, 0) is trace
    assert arrange(trace, 100.0, 0, sessions=1).arrival.tolist() in ([3.0], [5.0])


@property_test
@given(requests=traces(), start=st.integers(0, 20), span=st.integers(0, 20))
def test_cut_keeps_a_half_open_interval(
    requests: tuple[Request, ...], start: int, span: int
) -> None:
    part = cut(to_trace(requests), start, start + span)
    inside = [r.arrival for r in requests if start <= r.arrival < start + span]
    assert part.arrival.tolist() == inside
