"""The provider's case: room without end, a TTL that each use renews, and a price list.

A prompt's cached blocks are read at one price, its other blocks written at another, and what no
block covers is plain input. Prices are multiples of the price of an uncached input token. Left out:
the smallest prompt that a provider caches, and its limit on breakpoints; each would make
the cache dearer or smaller.

*Keep-alive*: a client whose session is silent sends the prompt again before the TTL ends, and pays
for reading it. A ping of n tokens costs ``read * n`` and buys one TTL; without it the return
costs ``(write - read) * n`` more. So k pings pay where ``read * k < (write - read) * p``,
if p is the probability that the session returns in the time they buy.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from kvsim.analysis.gaps import gap
from kvsim.cache.sweep import simulate
from kvsim.traces.trace import REQUEST_COLUMNS, Trace, TraceError

MARGIN = 1.0  # seconds before a TTL ends at which a client pings


@dataclass(frozen=True)
class Prices:
    """A TTL (seconds), and what a written and a read token cost beside one of uncached input."""

    name: str
    ttl: float
    write: float
    read: float
    source: str = "given by the user"

    def __post_init__(self) -> None:
        for name in ("ttl", "write", "read"):
            value = getattr(self, name)
            if not 0 < value < float("inf"):
                raise TraceError(f"prices {self.name}: {name} is {value}; it must be positive")

    @property
    def most_pings(self) -> float:
        """Pings that cost as much as one rewrite: more never pay, however surely one returns."""
        return max(self.write - self.read, 0.0) / self.read


ANTHROPIC = "Anthropic's prompt caching price list, 2026: multiples of the input price"
FIVE_MINUTES = Prices("5 min", 300.0, write=1.25, read=0.1, source=ANTHROPIC)
ONE_HOUR = Prices("1 h", 3600.0, write=2.0, read=0.1, source=ANTHROPIC)


def bill(trace: Trace, prices: Prices) -> dict[str, Any]:
    """Return what a trace's input costs where each block lives for the TTL after its last use.

    Parameters
    ----------
    trace : Trace
        The requests, those of one account: whatever one of them wrote any other may read.
    prices : Prices
        TTL and prices.

    Returns
    -------
    dict
        ``hit_ratio`` (blocks), ``read_tokens``, ``written_tokens``, ``plain_tokens``, ``price``
        (in uncached input tokens), ``without_cache`` (all input tokens), ``saved_share`` (1 minus
        their ratio, negative where the cache costs more; None without input).
    """
    result = simulate(trace, "lru", "inf", ttl=prices.ttl)
    read = int(result.hit_tokens.sum())
    written = int(trace.chain_tokens.sum()) - read
    plain = int(trace.unblocked_tokens.sum())
    price = prices.read * read + prices.write * written + plain
    whole = read + written + plain
    return {
        "hit_ratio": result.hit_ratio,
        "read_tokens": read,
        "written_tokens": written,
        "plain_tokens": plain,
        "price": price,
        "without_cache": whole,
        "saved_share": 1 - price / whole if whole else None,
    }


def with_pings(trace: Trace, ttl: float, pings: int, margin: float = MARGIN) -> Trace:
    """Return the trace with up to `pings` keep-alives in every silence of a session.

    After each request, until the session's next one, its whole chain is asked for again every
    ``ttl - margin`` seconds; after the session's last request, all `pings` times.

    Parameters
    ----------
    trace : Trace
        Requests with sessions.
    ttl : float
        Seconds.
    pings : int
        In a row, at most.
    margin : float
        Seconds before the TTL ends at which a client pings.

    Raises
    ------
    TraceError
        If the trace has no sessions, or the margin leaves no time.
    """
    if trace.sessions is None:
        raise TraceError(f"{trace.name}: it has no sessions, so nobody would know when to ping")
    if not 0 <= margin < ttl:
        raise TraceError(f"margin is {margin} s; it must be less than the TTL of {ttl} s")
    period = ttl - margin
    sent = np.minimum(np.ceil(silence(trace) / period) - 1, pings)
    sent = np.where(trace.chain_blocks > 0, np.maximum(sent, 0), 0).astype(np.int64)
    asked = np.repeat(np.arange(trace.requests), sent)
    turn = np.arange(len(asked)) - np.repeat(np.cumsum(sent) - sent, sent) + 1
    columns = {name: getattr(trace, name)[asked] for name in REQUEST_COLUMNS}
    columns["arrival"] = columns["arrival"] + turn * period
    columns["input_tokens"] = trace.chain_tokens[asked]
    columns["output_tokens"] = np.zeros_like(columns["output_tokens"])
    columns["order"] = (trace.requests + np.arange(len(asked))).astype(np.int32)
    both: dict[str, Any] = {
        name: np.concatenate((getattr(trace, name), columns[name])) for name in columns
    }
    return replace(trace, **both).sorted_by(both["arrival"])


def keep_alive(
    trace: Trace, prices: Prices, most: int | None = None, margin: float = MARGIN
) -> pd.DataFrame:
    """Return the bill with up to 0, 1, ... pings in every silence, exactly.

    Every row is a replay with the pings as requests of their own, so what one session's pings
    keep alive for another is in it.

    Parameters
    ----------
    trace : Trace
        Requests with sessions.
    prices : Prices
        TTL and prices.
    most : int, optional
        Pings in a row; by default as many as can ever pay.
    margin : float
        As for `with_pings`.

    Returns
    -------
    DataFrame
        A row a number of pings: ``pings``, ``sent``, ``read_tokens`` and ``written_tokens`` (pings
        included), ``price`` (uncached input tokens), ``saved_share`` of the price without pings;
        ``returned``, the share of the silences beyond the TTL, weighted by the prompt's tokens,
        that end in the time that the pings buy, and ``rule``, whether p = returned says that
        they pay. The rule charges every silence all pings, though a return stops them.
    """
    last = int(prices.most_pings) + 1 if most is None else most
    quiet = silence(trace)
    tokens = trace.chain_tokens
    asleep = quiet > prices.ttl
    rows: list[dict[str, Any]] = []
    for pings in range(last + 1):
        pinged = with_pings(trace, prices.ttl, pings, margin)
        paid = bill(pinged, prices)
        bought = prices.ttl + pings * (prices.ttl - margin)
        back = int(tokens[asleep & (quiet <= bought)].sum())
        returned = back / int(tokens[asleep].sum()) if tokens[asleep].sum() else 0.0
        first = rows[0]["price"] if rows else paid["price"]
        rows.append(
            {
                "pings": pings,
                "sent": pinged.requests - trace.requests,
                "read_tokens": paid["read_tokens"],
                "written_tokens": paid["written_tokens"],
                "price": paid["price"],
                "saved_share": 1 - paid["price"] / first if first else None,
                "returned": returned,
                "rule": bool(0 < prices.read * pings < (prices.write - prices.read) * returned),
            }
        )
    return pd.DataFrame(rows)


def silence(trace: Trace) -> np.ndarray:
    """Return the seconds until the session's next request, infinite after its last (float64[n])."""
    later = pd.Series(gap(trace)).groupby(trace.session).shift(-1)
    return later.fillna(np.inf).to_numpy()
