"""The engine gives every count of the reference, on random traces, caches and switches."""

import inspect
from collections import Counter
from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvsim import reference
from kvsim.engine import Result, Switches, replay
from kvsim.policies import POLICIES
from tests.naive import NAIVE, VARIANTS
from tests.strategies import SITUATIONS, Case, any_switches, cases, node_switches, situations

PER_REQUEST = ("hit_blocks", "hit_tokens", "capped_blocks", "capped_tokens")
FLOW = ("inserted", "evicted", "expired")

every_policy = pytest.mark.parametrize("name", POLICIES)


def counts(result: Result) -> dict[str, list[int] | int | None]:
    """Return all counts of an engine run."""
    columns = {name: getattr(result, name).tolist() for name in PER_REQUEST}
    return columns | {name: getattr(result, f"{name}_blocks") for name in FLOW}


def reference_counts(name: str, case: Case, parameters: dict) -> dict[str, list[int] | int | None]:
    """Return the same counts of a reference run with the policy's twin."""
    twin = NAIVE[name](case.requests, case.seed, **parameters)
    case = case.under(hit_cap=case.switches.hit_cap or POLICIES[name].hit_cap)
    per_request, cache = reference.simulate(case.requests, policy=twin, **case.reference)
    columns = {column: [getattr(one, column) for one in per_request] for column in PER_REQUEST}
    return columns | {flow: getattr(cache, flow) for flow in FLOW}


def test_every_policy_has_a_twin() -> None:
    assert NAIVE.keys() == POLICIES.keys()


@every_policy
@pytest.mark.property
@given(data=st.data(), case=cases())
def test_engine_equals_reference(name: str, data: st.DataObject, case: Case) -> None:
    parameters = data.draw(st.sampled_from([{}, *VARIANTS.get(name, [])]))
    result = replay(case.trace, POLICIES[name], **case.engine, parameters=parameters)
    assert counts(result) == reference_counts(name, case, parameters)


@pytest.mark.property
@given(name=st.sampled_from(list(POLICIES)), case=cases(switches=node_switches))
def test_compressed_tree_equals_one_block_a_node(name: str, case: Case) -> None:
    trace = case.trace
    whole = replay(trace, POLICIES[name], **case.engine)
    single = replay(trace.expand(), POLICIES[name], **case.engine)
    assert counts(whole) == counts(single)


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
