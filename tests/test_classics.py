"""The classic policies, each on an example worked by hand.

A chain of one block, unless the example is about what belongs together: then a
block leaves exactly where the rule of the policy says.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from kvsim.cache.engine import replay
from kvsim.cache.policies import POLICIES
from kvsim.cache.reference import Request
from kvsim.traces.trace import TraceError
from tests.strategies import BLOCK_SIZE, to_trace

Chain = tuple[int, ...]


def hits(
    policy: str,
    capacity: int,
    *chains: Chain,
    service: Sequence[float] | None = None,
    tail: int = BLOCK_SIZE,
    seed: int = 0,
    **parameters: Any,
) -> list[int]:
    """Return the hit blocks of each chain, a request a second; `tail` tokens in the last block."""
    requests = [
        Request(
            arrival=float(time),
            chain=chain,
            input_tokens=(len(chain) - 1) * BLOCK_SIZE + tail,
            service=service[time] if service else np.nan,
        )
        for time, chain in enumerate(chains)
    ]
    result = replay(
        to_trace(requests), POLICIES[policy], capacity, seed=seed, parameters=parameters
    )
    return result.hit_blocks.tolist()


A, B, C, D, E, F, G, H, K, L = ((block,) for block in range(1, 11))
NOTHING = ()


def test_random_draws_among_leaves() -> None:
    # Of A, B and the end of C's chain one goes for E, by the seed, and C itself never does.
    chains = [A, B, (3, 4), E, (3, 4)]
    assert {hits("random", 4, *chains, seed=seed)[-1] for seed in range(32)} == {1, 2}


def test_mru() -> None:
    # C displaces B; at the second B the last used is A.
    assert hits("mru", 2, A, B, C, A, B, C) == [0, 0, 0, 1, 0, 1]


def test_filo() -> None:
    # B came last and goes for C, although A was used before it; then C goes for B.
    assert hits("filo", 2, A, B, A, C, A, B, A) == [0, 0, 1, 0, 1, 0, 1]


def test_depth() -> None:
    # Block 4 stands in the octave of 4, block 3 in that of 2; both go before 5, which is older.
    assert hits("depth", 5, E, (1, 2, 3, 4), F, G, E, (1, 2, 3, 4)) == [0, 0, 0, 0, 1, 2]


def test_depth_leaves_the_order_within_an_octave_to_recency() -> None:
    # Second and third blocks are one octave: both of the older chain go.
    chains = [(1, 2, 3), (4, 5, 6), G, H, (4, 5, 6), (1, 2, 3)]
    assert hits("depth", 6, *chains) == [0, 0, 0, 0, 3, 1]


def test_lru_k() -> None:
    # B has one use and goes before A, which is older.
    assert hits("lru-k", 2, A, A, B, C, A) == [0, 1, 0, 0, 1]
    # The last use but one is 0 for A and 1 for B.
    assert hits("lru-k", 2, A, B, B, A, C, B) == [0, 0, 1, 1, 0, 1]


def test_lru_k_remembers_what_left() -> None:
    # A went for C and is back with a use to its name, so it stays while C and D go.
    chains = [A, B, C, A, D, E, A]
    assert hits("lru-k", 2, *chains) == [0, 0, 0, 0, 0, 0, 1]
    assert hits("lru-k", 2, *chains, history=False) == [0, 0, 0, 0, 0, 0, 0]


def test_lru_k_needs_a_use() -> None:
    with pytest.raises(TraceError, match="k is 0"):
        hits("lru-k", 1, A, k=0)


def test_lirs() -> None:
    # At C the gaps are 3 for A and 1 for B, and both were used later than that ago: A goes.
    assert hits("lirs", 2, A, B, B, A, C, B) == [0, 0, 1, 1, 0, 1]
    # Six requests later recency counts: 8 since B, 7 since A.
    assert hits("lirs", 2, A, B, B, A, *[NOTHING] * 6, C, B)[-1] == 0


def test_lfu_da() -> None:
    # B leaves with key 1, C with 1 + 1; D enters with 2 + 1, as A has from three uses: A is older.
    chains = [A, A, A, B, C, D, E, A]
    assert hits("lfu-da", 2, *chains) == [0, 1, 1, 0, 0, 0, 0, 0]
    assert hits("lfu", 2, *chains)[-1] == 1


def test_gdsf() -> None:
    # A block after 4 tokens costs 4 · (1 + 4/4), a first block 4.
    assert hits("gdsf", 3, (1, 2), C, D, (1, 2), knee=4.0) == [0, 0, 0, 2]


def test_gdsf_rates_a_partial_block_by_its_tokens() -> None:
    # Of the chain (1 2) the tail of one token goes, then block 1 would cost as much as C or D.
    chains = [C, (1, 2), D, C, (1, 2)]
    assert hits("gdsf", 3, *chains, tail=1, knee=1e9)[-1] == 1


def test_gdsf_needs_a_knee() -> None:
    with pytest.raises(TraceError, match="knee is 0"):
        hits("gdsf", 1, A, knee=0)


def test_hyperbolic() -> None:
    # At C, A had 2 uses in 6 requests, B 1 in 2.
    chains = [A, A, NOTHING, NOTHING, B, C, B]
    assert hits("hyperbolic", 2, *chains) == [0, 1, 0, 0, 0, 0, 1]
    assert hits("lfu", 2, *chains)[-1] == 0


def test_lhd() -> None:
    # For 256 requests A is hit two requests after its last use, and what comes in between never.
    # So A is worth more at that age than the newcomer at age 1, which LRU would keep.
    chains = [A if time % 2 == 0 else (time + 100,) for time in range(260)] + [B, A]
    assert hits("lhd", 2, *chains)[-1] == 1
    assert hits("lru", 2, *chains)[-1] == 0


def test_slru() -> None:
    # A, B and C are one too many protected: for E, A goes back behind D, and D leaves; for F, A.
    chains = [A, A, B, B, C, C, D, E, F, B, A]
    assert hits("slru", 4, *chains, protected=0.5) == [0, 1, 0, 1, 0, 1, 0, 0, 0, 1, 0]


def test_slru_demotes_what_is_too_much_of_a_chain() -> None:
    # Three blocks are protected where two may be: block 3 goes back, and leaves for 5.
    chains = [(1, 2, 3), (1, 2, 3), D, E, F, (1, 2, 3)]
    assert hits("slru", 4, *chains, protected=0.5) == [0, 3, 0, 0, 0, 2]


def test_2q() -> None:
    # A leaves A1in for E, A1out remembers it, and A returns into Am, which is not due while
    # A1in holds more than one block.
    chains = [A, B, C, D, E, F, A, G, H, K, L, A]
    assert hits("2q", 4, *chains) == [0] * 11 + [1]
    assert hits("lru", 4, *chains)[-1] == 0


def test_2q_forgets() -> None:
    # A1out holds two blocks: when A returns, B and C have left after it.
    chains = [A, B, C, D, E, F, G, A, H, K, L, (11,), A]
    assert hits("2q", 4, *chains)[-1] == 0


def test_arc() -> None:
    # B leaves T1 for C; its return raises the target to 1, so that A leaves T2; A's return lowers
    # the target to 0, so that C leaves T1.
    assert hits("arc", 2, A, A, B, C, B, A, B) == [0, 1, 0, 0, 0, 0, 1]


def test_s3_fifo() -> None:
    # A leaves the small queue and returns into the main one; B, used twice more, moves there.
    # Then newcomers displace each other.
    chains = [A, B, C, D, B, B, E, F, A, G, H, K, L, B, A]
    expected = [0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 1, 1]
    assert hits("s3-fifo", 4, *chains, small=0.25) == expected


def test_s3_fifo_moves_a_chain_together() -> None:
    # Blocks 1 and 2 have two uses each and move as one, so C leaves, and D after it.
    chains = [(1, 2), (1, 2), (1, 2), C, D, E, (1, 2)]
    assert hits("s3-fifo", 3, *chains, small=0.25) == [0, 2, 2, 0, 0, 0, 2]


def test_sieve() -> None:
    # The hand spares A and takes B; it goes on from there, to C and D, and comes back to A last.
    chains = [A, B, C, A, D, E, F, A]
    assert hits("sieve", 3, *chains) == [0, 0, 0, 1, 0, 0, 0, 1]
    assert hits("lru", 3, *chains)[-1] == 0


def test_sieve_comes_back() -> None:
    # Both were used: the hand clears A and B, starts again and takes A.
    assert hits("sieve", 2, A, B, A, B, C, B, A) == [0, 0, 1, 1, 0, 1, 0]


def test_sieve_spares_a_chain_together() -> None:
    assert hits("sieve", 3, (1, 2), (1, 2), C, D, E, (1, 2)) == [0, 2, 0, 0, 0, 2]


def test_w_tinylfu() -> None:
    # B and C leave the main part for E and F in the window of one block. For G, E contends with D,
    # both asked for once, and goes; for H, G does. F, asked for twice, displaces D for K.
    chains = [A, B, C, D, A, A, E, F, G, F, H, K, F, A, D]
    expected = [0, 0, 0, 0, 1, 1, 0, 0, 0, 1, 0, 0, 1, 1, 0]
    assert hits("w-tinylfu", 4, *chains, window=0.25) == expected


def last_hit(seed: int, **parameters: float) -> int:
    """Return whether LeCaR keeps A, which LRU would evict and LFU not."""
    requests = [Request(float(i), chain, BLOCK_SIZE) for i, chain in enumerate([A, A, B, C, A])]
    result = replay(to_trace(requests), POLICIES["lecar"], 2, seed=seed, parameters=parameters)
    return int(result.hit_blocks[-1])


def test_lecar_draws_its_expert() -> None:
    kept = sum(last_hit(seed) for seed in range(100))
    assert 30 < kept < 70


def test_lecar_learns_from_what_returns() -> None:
    # Where LRU evicted A, and A returned, LRU's weight falls to 0.01 at this rate, and where
    # LFU evicted B, and B returned, LFU's does. So the other way it goes from then on.
    chains = [A, A, B, C, A, A, B, C, A]
    requests = [Request(float(i), chain, BLOCK_SIZE) for i, chain in enumerate(chains)]
    trace = to_trace(requests)
    learnt = [
        replay(trace, POLICIES["lecar"], 2, seed=seed, parameters={"rate": 1e6}).hit_blocks
        for seed in range(100)
    ]
    by_lru_first = [hit[8] for hit in learnt if not hit[4]]
    assert len(by_lru_first) > 30
    assert np.mean(by_lru_first) > 0.9


def test_vllm_orders_by_release() -> None:
    # The first request ends at 10, the second at 2: of the second's blocks the last one goes.
    chains = [(1, 2), (3, 4), E, (3, 4), (1, 2)]
    service = [10.0, 1.0, 1.0, 1.0, 1.0]
    assert hits("vllm", 4, *chains, service=service) == [0, 0, 0, 1, 1]
    assert hits("lru", 4, *chains, service=service)[-2:] == [2, 1]


def test_vllm_recomputes_the_last_token_and_partial_blocks() -> None:
    assert hits("vllm", 9, (1, 2), (1, 2)) == [0, 1]
    assert hits("vllm", 9, (1, 2), (1, 2), tail=1) == [0, 1]
    assert hits("vllm", 9, A, A) == [0, 0]
