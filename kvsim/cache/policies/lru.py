"""LRU: evict the leaf that was used longest ago.

Source: the default of vLLM and SGLang; Mattson et al. 1970 for its curve.
Cost: O(log leaves) a request. Nothing adapted: every leaf ranks equal, and
the engine breaks ties by recency.
"""

from kvsim.cache.policy import Policy

POLICY = Policy(
    name="lru",
    summary="Evict the least recently used leaf.",
    source="Mattson et al. 1970; vLLM and SGLang default",
)
