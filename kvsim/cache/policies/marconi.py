"""Marconi's utility: recency plus what recomputing would cost a byte.

Source: Marconi (MLSys'25, 2411.19379): utility = norm(1 / age) + α · norm(FLOPs saved a byte),
the smallest goes. Age is in requests since the last use, and 1 / age is at most 1. Of a dense
transformer a token's FLOPs a byte of its KV are 1 + position / `doubling` relative
to the first token's (`kvsim.cache.costs`), divided by that of the latest position seen.

Parameters: `alpha` a ratio; `doubling` in tokens. Cost: O(leaves) a request that evicts.
Adapted: leaves only, where the paper also takes nodes with one child (whose state a hybrid
model can drop alone, the trait the paper is about); α is fixed, where the paper tunes
it by replay; norms are over all that was seen, where the paper's are over the candidates.
"""

from kvsim.cache.costs import LLAMA_3_70B
from kvsim.cache.policy import Policy, new_state
from kvsim.traces.trace import TraceError

ALPHA, DOUBLING, LATEST = range(3)


def rank(state, cache, node, now):
    """Rank by the utility."""
    alpha, doubling, latest = state.scalars
    block = cache.nodes[node]
    position = block.tokens_above + (block.resident - 1) * cache.block_size
    saved = (1.0 + position / doubling) / (1.0 + latest / doubling)
    return 1.0 / max(now - block.last, 1) + alpha * saved


def on_request(state, cache, now, hit_blocks):
    """Note the latest position."""
    node = cache.requests[now].terminal
    if node >= 0:
        block = cache.nodes[node]
        position = block.tokens_above + (block.length - 1) * cache.block_size
        state.scalars[LATEST] = max(state.scalars[LATEST], float(position))


def setup(trace, capacity, seed, alpha, doubling):
    """Return the parameters and the latest position."""
    if not doubling > 0:
        raise TraceError(f"doubling is {doubling}; it must be above 0 tokens")
    return new_state(trace, scalars=[alpha, doubling, 0.0])


POLICY = Policy(
    name="marconi",
    summary="Evict the leaf with the least recency plus FLOPs saved a byte.",
    source="Marconi (MLSys'25, 2411.19379)",
    rank=rank,
    setup=setup,
    on_request=on_request,
    rerank="request",
    parameters={"alpha": 1.0, "doubling": LLAMA_3_70B.doubling},
)
