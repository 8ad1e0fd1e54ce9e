"""The engine gives every count of the reference, on random traces, caches and switches."""

import inspect
from collections import Counter
from collections.abc import Sequence
from dataclasses import fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvsim.cache import reference
from kvsim.cache.engine import Switches, replay
from kvsim.cache.policies import POLICIES
from kvsim.cache.policy import RERANK, Policy, new_state
from kvsim.cache.result import Result
from tests.naive import NAIVE, VARIANTS
from tests.naive_sglang import STRATEGIES
from tests.strategies import SITUATIONS, Case, any_switches, cases, node_switches, situations

PER_REQUEST = ("hit_blocks", "hit_tokens", "capped_blocks", "capped_tokens")
FLOW = ("inserted", "evicted", "expired")

every_policy = pytest.mark.parametrize("name", NAIVE)


def counts(result: Result) -> dict[str, list[int] | int | None]:
    """Return all counts of an engine run."""
    columns = {name: getattr(result, name).tolist() for name in PER_REQUEST}
    return columns | {name: getattr(result, f"{name}_blocks") for name in FLOW}


def reference_counts(twin: reference.Policy, case: Case) -> dict[str, list[int] | int | None]:
    """Return the same counts of a reference run."""
    per_request, cache = reference.simulate(case.requests, policy=twin, **case.reference)
    columns = {column: [getattr(one, column) for one in per_request] for column in PER_REQUEST}
    return columns | {flow: getattr(cache, flow) for flow in FLOW}


def test_every_policy_has_a_twin() -> None:
    assert NAIVE.keys() | STRATEGIES.keys() == POLICIES.keys()


@every_policy
@pytest.mark.property
@given(data=st.data(), case=cases())
def test_engine_equals_reference(name: str, data: st.DataObject, case: Case) -> None:
    parameters = data.draw(st.sampled_from([{}, *VARIANTS.get(name, [])]))
    policy, twin = POLICIES[name], NAIVE[name](case.requests, case.seed, **parameters)
    trace = case.trace
    compressed = counts(replay(trace, policy, **case.engine, parameters=parameters))
    single = counts(replay(trace.expand(), policy, **case.engine, parameters=parameters))
    if policy.hit_cap:
        case = case.under(hit_cap=policy.hit_cap)
    assert compressed == reference_counts(twin, case)
    assert single == compressed, "one block a node differs from the compressed tree"


def probe_rank(state, cache, node, now):  # type: ignore[no-untyped-def]
    block = cache.nodes[node]
    return (7 * state.nodes[node, 0] + block.depth + block.resident + state.scalars[1]) % 5


def probe_request(state, cache, now, hit_blocks):  # type: ignore[no-untyped-def]
    state.scalars[0] = hit_blocks


def probe_touch(state, cache, first, last, now):  # type: ignore[no-untyped-def]
    for level in range(first, last):
        state.nodes[cache.path[level], 0] = state.scalars[0]


def probe_removal(state, cache, node, blocks, now, expired):  # type: ignore[no-untyped-def]
    state.scalars[1] += blocks * (3 if expired else 1)


PROBE = Policy(
    name="probe",
    summary="Rank by all that a policy is told.",
    source="none",
    rank=probe_rank,
    setup=lambda trace, capacity, seed: new_state(trace, scalars=[0, 0], nodes=1),
    on_request=probe_request,
    on_touch=probe_touch,
    on_remove=probe_removal,
    rerank="eviction",
    uniform=False,
)


class ProbeTwin(reference.Policy):
    """Rank by all that a policy is told."""

    def __init__(self) -> None:
        self.hits = self.removed = 0
        self.told: dict[reference.Block, int] = {}

    def on_request(self, chain: Sequence[reference.Block], hits: int) -> None:
        self.hits = hits

    def on_touch(self, block: reference.Block) -> None:
        self.told[block] = self.hits

    def on_remove(self, block: reference.Block, expired: bool) -> None:
        self.removed += 3 if expired else 1

    def rank(self, block: reference.Block) -> int:
        return (7 * self.told[block] + block.depth + 1 + self.removed) % 5


@pytest.mark.property
@given(case=cases())
def test_policies_are_told_the_same(case: Case) -> None:
    result = replay(case.trace, PROBE, **case.engine)
    assert counts(result) == reference_counts(ProbeTwin(), case)


@pytest.mark.property
@pytest.mark.parametrize("rerank", [rerank for rerank in RERANK if rerank != "touch"])
@given(case=cases())
def test_a_policy_without_ranks_has_none_to_renew(rerank: str, case: Case) -> None:
    lru = POLICIES["lru"]
    renewing = replay(case.trace, replace(lru, rerank=rerank), case.capacity)  # type: ignore[arg-type]
    assert counts(renewing) == counts(replay(case.trace, lru, case.capacity))


def test_reference_takes_the_engines_switches_with_the_same_defaults() -> None:
    simulate = inspect.signature(reference.simulate).parameters
    known = {f.name: f.default for f in fields(reference.Cache)}
    known |= {name: parameter.default for name, parameter in simulate.items()}
    for switch in fields(Switches):
        assert known[switch.name] == switch.default


@pytest.mark.parametrize("switches", [node_switches, any_switches], ids=["nodes", "any"])
def test_generators_reach_every_situation(switches: st.SearchStrategy[Switches]) -> None:
    reached: Counter[str] = Counter()

    @given(case=cases(switches=switches))
    def look(case: Case) -> None:
        reached.update(situations(case))

    look()
    need_no_pins = {"evicted within the own chain"} if switches is node_switches else set()
    assert SITUATIONS - need_no_pins - reached.keys() == set()
