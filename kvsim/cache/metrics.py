"""Totals and tables of one run; every ratio is a sum over a sum."""

from typing import Any

import pandas as pd

from kvsim.cache.result import Result
from kvsim.traces.trace import Trace


def info(trace: Trace) -> dict[str, Any]:
    """Return what is in a trace (counts in requests, sessions, blocks, tokens)."""
    return {
        "requests": trace.requests,
        "sessions": trace.sessions,
        "blocks": trace.blocks,
        "distinct_blocks": trace.distinct_blocks,
        "infinite_hit_blocks": trace.infinite_hit_blocks,
        "input_tokens": int(trace.input_tokens.sum()),
        "infinite_hit_tokens": trace.infinite_hit_tokens,
        "unblocked_tokens": int(trace.unblocked_tokens.sum()),
        "block_size": trace.block_size,
    }


def per_request(trace: Trace, result: Result) -> pd.DataFrame:
    """Return one row a request, in processing order.

    Blocks and tokens are split into hit, capped, compulsory and recompute; the
    tokens' rest is `unblocked_tokens`.
    """
    hit_blocks = result.hit_blocks + result.capped_blocks
    hit_tokens = result.hit_tokens + result.capped_tokens
    return pd.DataFrame(
        {
            "arrival": trace.arrival,
            "session": trace.session,
            "blocks": trace.chain_blocks,
            "hit_blocks": result.hit_blocks,
            "capped_blocks": result.capped_blocks,
            "compulsory_blocks": trace.chain_blocks - trace.seen_blocks,
            "recompute_blocks": trace.seen_blocks - hit_blocks,
            "tokens": trace.input_tokens,
            "hit_tokens": result.hit_tokens,
            "capped_tokens": result.capped_tokens,
            "compulsory_tokens": trace.chain_tokens - trace.seen_tokens,
            "recompute_tokens": trace.seen_tokens - hit_tokens,
            "unblocked_tokens": trace.unblocked_tokens,
        }
    )


def summary(trace: Trace, result: Result) -> dict[str, Any]:
    """Return the totals of a run.

    `hit_ratio` is hit blocks over blocks and `hit_token_ratio` hit tokens over
    input tokens; `request_mean_hit_ratio` is the mean over requests of the block
    ratio. All are None for a trace without blocks.
    """
    rows = per_request(trace, result)
    totals = rows.drop(columns=["arrival", "session"]).sum().to_dict()
    asked = rows[rows["blocks"] > 0]
    mean = (asked["hit_blocks"] / asked["blocks"]).mean() if len(asked) else None
    return {
        "policy": result.policy,
        "capacity": result.capacity,
        "requests": trace.requests,
        **{str(name): int(total) for name, total in totals.items()},
        "hit_ratio": _ratio(totals["hit_blocks"], totals["blocks"]),
        "hit_token_ratio": _ratio(totals["hit_tokens"], totals["tokens"]),
        "request_mean_hit_ratio": None if mean is None else float(mean),
        "inserted_blocks": result.inserted_blocks,
        "evicted_blocks": result.evicted_blocks,
        "expired_blocks": result.expired_blocks,
    }


def _ratio(part: float, whole: float) -> float | None:
    return float(part / whole) if whole else None
