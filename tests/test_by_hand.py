"""Traces small enough to follow by hand, through both simulators."""

from dataclasses import replace
from typing import NamedTuple

import pytest

from kvsim.cache.engine import Switches, replay
from kvsim.cache.policies import POLICIES
from kvsim.cache.reference import Request, simulate
from tests.naive import NAIVE
from tests.strategies import BLOCK_SIZE, Case

A, B = (1, 2, 3), (9, 8)
FLAT_ROOT_OLDEST = Switches(eviction="flat", touch_order="root-oldest")
SET_HITS = replace(FLAT_ROOT_OLDEST, hits="set")


class Hand(NamedTuple):
    """Chains of full blocks, a second apart, and the hit blocks of each request."""

    policy: str
    capacity: int
    chains: list[tuple[int, ...]]
    hits: list[int]
    switches: Switches = Switches()
    ttl: float | None = None


EXAMPLES = {
    "a block touched exactly TTL ago is there": Hand("lru", 9, [A, A], [0, 3], ttl=1.0),
    "a block touched more than TTL ago is gone": Hand("lru", 9, [A, (9,), A], [0, 0, 0], ttl=1.0),
    "a hit refreshes its prefix only": Hand("lru", 9, [A, (1, 2), A], [0, 2, 2], ttl=1.0),
    "a long chain keeps its head": Hand("lru", 2, [A, (1,), A], [0, 1, 2]),
    "the deepest block of a request goes first": Hand("lru", 3, [A, (9,), A], [0, 0, 2]),
    # Flat, with the root oldest: 9 takes the place of 1, and then no prefix is left.
    "hits are a prefix": Hand("lru", 3, [A, (9,), A], [0, 0, 0], FLAT_ROOT_OLDEST),
    "set hits are not": Hand(
        "lru", 3, [A, (9,), A], [0, 0, 2], replace(FLAT_ROOT_OLDEST, hits="set")
    ),
    # 8 gives way to the second 3, which is then younger than 9.
    "a re-inserted tail is younger than its head": Hand(
        "fifo", 4, [A, B, A, (7,), A], [0, 0, 2, 0, 3]
    ),
    # The second 3 has been used once, 9 twice, and 1 and 2 three times.
    "a re-inserted tail counts anew": Hand(
        "lfu", 4, [A, A, B, A, (9,), (7,), A], [0, 3, 0, 2, 1, 0, 2]
    ),
    "equal counts: the least recently used goes": Hand(
        "lfu", 2, [(1,), (2,), (3,), (2,), (1,)], [0, 0, 0, 1, 0]
    ),
    # 1 is used next at the end, and 2 before; once 2 was used, it is of no use.
    "the next use advances": Hand("belady", 2, [(1,), (2,), (2,), (3,), (1,)], [0, 0, 1, 0, 1]),
    "without pins a request can evict its own prefix": Hand(
        "lru",
        2,
        [(1, 2), (3,), (1, 2, 4), (1, 2)],
        [0, 0, 1, 1],
        Switches(pinning=False, touch_order="root-oldest"),
    ),
    "the same id elsewhere is another block": Hand("lru", 9, [(1, 5), (2, 5), (5,)], [0, 0, 0]),
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_both_simulators_give_the_hits_found_by_hand(name: str) -> None:
    hand = EXAMPLES[name]
    requests = tuple(
        Request(float(time), chain, len(chain) * BLOCK_SIZE)
        for time, chain in enumerate(hand.chains)
    )
    case = Case(requests, hand.capacity, hand.ttl, hand.switches, seed=0)
    twin = NAIVE[hand.policy](requests, 0)
    counts, _ = simulate(requests, policy=twin, **case.reference)
    result = replay(case.trace, POLICIES[hand.policy], **case.engine)
    assert [count.hit_blocks for count in counts] == hand.hits
    assert result.hit_blocks.tolist() == hand.hits
