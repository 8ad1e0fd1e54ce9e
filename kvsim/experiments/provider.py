"""The provider's case: what caching saves at list prices, and when a keep-alive pays."""

from collections.abc import Sequence

import pandas as pd

from kvsim.analysis.provider import FIVE_MINUTES, ONE_HOUR, Prices, bill, keep_alive
from kvsim.experiments.plain import NO_DATA, count, fine_percent, label, lay_out, percent
from kvsim.experiments.store import Experiment
from kvsim.report.results import Tables
from kvsim.traces.arrivals import arrange
from kvsim.traces.trace import Trace

PRICES = (FIVE_MINUTES, ONE_HOUR)
BILL = ("hit_ratio", "read_tokens", "written_tokens", "plain_tokens", "price", "saved_share")
PING = (
    "pings",
    "sent",
    "read_tokens",
    "written_tokens",
    "price",
    "saved_share",
    "returned",
    "rule",
)


def tables(
    trace: Trace,
    window: float = 8 * 3600,
    seed: int = 0,
    prices: Sequence[Prices] = PRICES,
) -> Tables:
    """Return the bill at each price list, and with each number of keep-alive pings.

    Parameters
    ----------
    trace : Trace
        The requests.
    window, seed : float, int
        Seconds and seed of the session starts, where the trace has sessions.
    prices : sequence of Prices
        TTLs and prices.

    Returns
    -------
    dict of DataFrame
        ``bills`` (a row a price list) and ``pings`` (a row a price list and number of pings;
        none where the trace has no sessions).
    """
    arranged = arrange(trace, window, seed)
    lists = [
        {"prices": each.name, "ttl_s": each.ttl, "write": each.write, "read": each.read}
        for each in prices
    ]
    bills = pd.DataFrame(
        [facts | bill(arranged, each) for facts, each in zip(lists, prices, strict=True)]
    )
    pings = pd.DataFrame(columns=["prices", "ttl_s", *PING])
    if arranged.sessions:
        parts = [
            keep_alive(arranged, each).assign(prices=each.name, ttl_s=each.ttl) for each in prices
        ]
        pings = pd.concat(parts, ignore_index=True)[pings.columns]
    digits = {"hit_ratio": 6, "saved_share": 6, "returned": 6, "price": 1}
    return {"bills": bills.round(digits), "pings": pings.round(digits)}


def best(pings: pd.DataFrame) -> pd.DataFrame:
    """Return the number of pings that pays most, a row a trace and price list.

    Parameters
    ----------
    pings : DataFrame
        The experiment's table, with a column `trace`.

    Returns
    -------
    DataFrame
        By trace and prices: ``pings`` and ``saved_share`` of the price without pings, the same of
        one ping, and ``most``, the largest number that still saves something.
    """
    rows = []
    for (trace, prices), part in pings.groupby(["trace", "prices"], sort=False):
        part = part.sort_values("pings")
        top = part.sort_values("price", kind="stable").iloc[0]
        paying = part.loc[part["saved_share"] > 0, "pings"]
        rows.append(
            {
                "trace": trace,
                "prices": prices,
                "pings": int(top["pings"]),
                "saved_share": top["saved_share"],
                "saved_by_one": part.set_index("pings")["saved_share"].get(1),
                "most": int(paying.max()) if len(paying) else 0,
            }
        )
    return pd.DataFrame(rows).set_index(["trace", "prices"])


def text(trace: str, tables: Tables) -> str:
    """Return the readable report of one trace."""
    bills, pings = tables["bills"], tables["pings"]
    lines = [
        "Input, in the price of an uncached token; blocks live for the TTL after their last use:",
        "",
        lay_out(
            bills,
            {
                "prices": ("TTL", label),
                "write": ("write", label),
                "read": ("read", label),
                "hit_ratio": ("hit ratio", fine_percent),
                "read_tokens": ("read tokens", count),
                "written_tokens": ("written tokens", count),
                "plain_tokens": ("plain tokens", count),
                "price": ("price", count),
                "without_cache": ("without cache", count),
                "saved_share": ("saved", percent),
            },
        ),
        "",
    ]
    if not len(pings):
        return "\n".join([*lines, f"Keep-alive pings: {NO_DATA}, the trace has no sessions."])
    for name, part in pings.groupby("prices", sort=False):
        lines += [
            f"Up to so many keep-alive pings in every silence of a session, TTL {name}:",
            "",
            lay_out(
                part,
                {
                    "pings": ("pings", count),
                    "sent": ("sent", count),
                    "price": ("price", count),
                    "saved_share": ("saved", fine_percent),
                    "returned": ("returned in time", percent),
                    "rule": ("rule says yes", label),
                },
            ),
            "",
        ]
    return "\n".join(lines)


EXPERIMENT = Experiment(
    12, "provider", "The provider's case: bills, and keep-alive pings", tables, text
)
