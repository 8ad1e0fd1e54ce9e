"""What a policy is worth in memory: the capacity at which LRU has as many hits.

LRU's curve is exact at every capacity (`kvsim.cache.curves.lru_curve`), so `worth` interpolates
nothing; `memory_multiple` reads a curve of which only some points are known.
"""

import numpy as np

KV_BYTES = 131_072  # a token: 32 layers of 8 heads of 128 keys and values in two bytes each


def worth(lru_hits: np.ndarray, hits: int, capacity: int) -> float:
    """Return how many times the capacity LRU needs to have at least as many hits.

    Parameters
    ----------
    lru_hits : int64[n]
        LRU's hit blocks at capacities 0 to n - 1 blocks, as `kvsim.cache.curves.lru_curve`
        gives them; they never fall, and beyond the last they stay.
    hits : int
        Hit blocks of the other policy on the same requests.
    capacity : int
        Blocks that it had, at least 1.

    Returns
    -------
    float
        The smallest such capacity over `capacity`: above 1 the policy saves memory, below 1 it
        wastes some. 1 if LRU has these very hits at `capacity`, also where a smaller cache
        would do for both; infinite if LRU never has as many.
    """
    if hits == lru_hits[min(capacity, len(lru_hits) - 1)]:
        return 1.0
    if hits > lru_hits[-1]:
        return float("inf")
    return int(np.searchsorted(lru_hits, hits)) / capacity


def memory_multiple(
    sizes: np.ndarray, lru_hits: np.ndarray, capacity: int, lru_here: float, hits: float
) -> float:
    """Return the multiple of a capacity at which LRU hits as much as was hit at the capacity.

    Between known points of LRU's curve hits are taken to grow evenly with the logarithm of
    the capacity; with every capacity known the result is exact to a block.

    Parameters
    ----------
    sizes, lru_hits : arrays of one length
        LRU's curve: capacities (blocks, at least 1, ascending), and hits (any unit), never falling.
    capacity : int
        Blocks.
    lru_here, hits : float
        Hits at the capacity, of LRU and of what is judged.

    Returns
    -------
    float
        1 where both hit the same; NaN where the curve does not reach as far as `hits`.
    """
    if hits == lru_here:
        return 1.0
    after = int(np.searchsorted(lru_hits, hits))
    if after == len(lru_hits) or (after == 0 and lru_hits[0] > hits):
        return float("nan")
    needed = float(sizes[after])
    if after and lru_hits[after] > hits:
        step = (hits - lru_hits[after - 1]) / (lru_hits[after] - lru_hits[after - 1])
        needed = float(sizes[after - 1] * (sizes[after] / sizes[after - 1]) ** step)
    # Where LRU's curve is flat, the same hits may be had on either side of the capacity.
    return max(needed / capacity, 1.0) if hits > lru_here else min(needed / capacity, 1.0)
