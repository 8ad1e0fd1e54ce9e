"""What one run counts."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, eq=False)
class Result:
    """Per-request counts of one run.

    Attributes
    ----------
    policy : str
    capacity : int
        Blocks.
    hit_blocks, hit_tokens : int64[n]
        Hits counted, in the trace's row order.
    capped_blocks, capped_tokens : int64[n]
        Hits that the engine's hit cap does not count.
    inserted_blocks, evicted_blocks, expired_blocks : int or None
        Flow of blocks; None for a bound that has no flow.
    """

    policy: str
    capacity: int
    hit_blocks: np.ndarray
    hit_tokens: np.ndarray
    capped_blocks: np.ndarray
    capped_tokens: np.ndarray
    inserted_blocks: int | None = None
    evicted_blocks: int | None = None
    expired_blocks: int | None = None


def counted(
    policy: str, capacity: int, blocks: np.ndarray, tokens: np.ndarray, **flow: int
) -> Result:
    """Return the result of hits without a cap (int64[n] blocks and tokens)."""
    none = np.zeros_like(blocks)
    return Result(policy, capacity, blocks, tokens, none, none, **flow)
