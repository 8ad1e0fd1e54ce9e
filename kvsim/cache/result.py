"""What one run counted, request by request, and its totals."""

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import pandas as pd

from kvsim.traces.trace import Trace


@dataclass(frozen=True, eq=False, repr=False)
class Result:
    """Counts of one run.

    Attributes
    ----------
    trace : Trace
        What was replayed.
    policy : str
    capacity : int
        Blocks.
    hit_blocks, hit_tokens : int64[n]
        Hits counted, in the trace's row order.
    capped_blocks, capped_tokens : int64[n]
        Hits that the engine's hit cap does not count.
    inserted_blocks, evicted_blocks, expired_blocks : int or None
        Flow of blocks over the whole run; None for a bound that has no flow.
    first : int
        Row of the first request that totals count; those before it warm the cache up.
    """

    trace: Trace
    policy: str
    capacity: int
    hit_blocks: np.ndarray
    hit_tokens: np.ndarray
    capped_blocks: np.ndarray
    capped_tokens: np.ndarray
    inserted_blocks: int | None = None
    evicted_blocks: int | None = None
    expired_blocks: int | None = None
    first: int = 0

    def __repr__(self) -> str:
        ratio = "no data" if self.hit_ratio is None else f"hit ratio {self.hit_ratio:.2%}"
        counted = f", counted from request {self.first:,}" if self.first else ""
        facts = (
            f"<Result {self.trace.name}, {self.policy} at {self.capacity:,} blocks: "
            f"{ratio} of blocks{counted}>"
        )
        return "\n".join((facts, *(f"note: {note}" for note in self.trace.notes)))

    @property
    def hit_ratio(self) -> float | None:
        """Hit blocks over blocks asked for; None if none were."""
        return _ratio(self.hit_blocks[self.first :], self.trace.chain_blocks[self.first :])

    def per_request(self) -> pd.DataFrame:
        """Return one row a request that counts, in processing order.

        Blocks and tokens are split into hit, capped, compulsory and recompute; the
        tokens' rest is `unblocked_tokens`.
        """
        trace = self.trace
        found_blocks = self.hit_blocks + self.capped_blocks
        found_tokens = self.hit_tokens + self.capped_tokens
        rows = pd.DataFrame(
            {
                "arrival": trace.arrival,
                "session": trace.session,
                "blocks": trace.chain_blocks,
                "hit_blocks": self.hit_blocks,
                "capped_blocks": self.capped_blocks,
                "compulsory_blocks": trace.chain_blocks - trace.seen_blocks,
                "recompute_blocks": trace.seen_blocks - found_blocks,
                "tokens": trace.input_tokens,
                "hit_tokens": self.hit_tokens,
                "capped_tokens": self.capped_tokens,
                "compulsory_tokens": trace.chain_tokens - trace.seen_tokens,
                "recompute_tokens": trace.seen_tokens - found_tokens,
                "unblocked_tokens": trace.unblocked_tokens,
            }
        )
        return rows.iloc[self.first :]

    def row(self) -> dict[str, Any]:
        """Return the totals of the run, a row of a table.

        `hit_ratio` is hit blocks over blocks and `hit_token_ratio` hit tokens over
        input tokens; `request_mean_hit_ratio` is the mean over requests of the block
        ratio. All are None where nothing was asked for.
        """
        rows = self.per_request()
        totals = rows.drop(columns=["arrival", "session"]).sum()
        asked = rows[rows["blocks"] > 0]
        mean = (asked["hit_blocks"] / asked["blocks"]).mean() if len(asked) else None
        return {
            "policy": self.policy,
            "capacity": self.capacity,
            "requests": len(rows),
            **{str(name): int(total) for name, total in totals.items()},
            "hit_ratio": self.hit_ratio,
            "hit_token_ratio": _ratio(rows["hit_tokens"], rows["tokens"]),
            "request_mean_hit_ratio": None if mean is None else float(mean),
            "inserted_blocks": self.inserted_blocks,
            "evicted_blocks": self.evicted_blocks,
            "expired_blocks": self.expired_blocks,
        }


def counted(
    trace: Trace,
    policy: str,
    capacity: int,
    blocks: np.ndarray,
    tokens: np.ndarray,
    **more: int,
) -> Result:
    """Return the result of hits without a cap (int64[n] blocks and tokens)."""
    none = np.zeros_like(blocks)
    return Result(trace, policy, capacity, blocks, tokens, none, none, **more)


def cap_hits(result: Result, hit_cap: Literal["engine"] | None) -> Result:
    """Apply the engine's hit cap, which vLLM and SGLang share: the last token is recomputed."""
    if hit_cap is None:
        return result
    trace = result.trace
    cap = np.maximum(trace.input_tokens - 1, 0) // trace.block_size
    blocks = np.minimum(result.hit_blocks, cap)
    tokens = np.where(result.hit_blocks > cap, cap * trace.block_size, result.hit_tokens)
    return replace(
        result,
        hit_blocks=blocks,
        hit_tokens=tokens,
        capped_blocks=result.hit_blocks - blocks,
        capped_tokens=result.hit_tokens - tokens,
    )


def _ratio(part: np.ndarray | pd.Series, whole: np.ndarray | pd.Series) -> float | None:
    return float(part.sum() / whole.sum()) if whole.sum() else None
