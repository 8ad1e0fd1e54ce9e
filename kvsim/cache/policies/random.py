"""Random: evict the block with the smallest hash of (seed, eviction, birth, depth).

Source: classic control. Cost: O(leaves) an eviction, because every eviction
draws anew. The hash (splitmix64's finaliser, Steele et al. 2014) stands in for
a generator so that two simulators agree however they order their candidates.
"""

import numpy as np
from numba import njit

from kvsim.cache.policy import EVICTED, Policy, new_state


@njit(cache=True)
def mix(value, salt):
    """Hash two integers to 64 bits."""
    z = np.uint64(value) ^ (np.uint64(salt) * np.uint64(0x9E3779B97F4A7C15))
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def rank(state, cache, node, now):
    """Rank by the hash, as a number of 53 bits."""
    block = cache.nodes[node]
    depth = block.depth + block.resident - 1
    z = mix(np.uint64(state.scalars[0]), np.uint64(cache.counts[EVICTED] + 1))
    z = mix(z, np.uint64(cache.runs[block.run].birth + 1))
    z = mix(z, np.uint64(depth + 1))
    return float(z >> np.uint64(11))


def setup(trace, capacity, seed):
    """Return the seed."""
    return new_state(trace, scalars=[seed])


POLICY = Policy(
    name="random",
    summary="Evict a leaf at random (seeded).",
    source="classic",
    rank=rank,
    setup=setup,
    rerank="eviction",
    uniform=False,
)
