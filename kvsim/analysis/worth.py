"""What a policy is worth in memory: the capacity at which LRU has as many hits.

LRU's curve is exact at every capacity (`kvsim.cache.curves.lru_curve`), so nothing is interpolated.
"""

import numpy as np


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
