"""Which limit binds: the regime of a cache, by one rule."""

NEAR = 0.01  # of hit ratio: LRU is as good as an infinite cache
MILD = 0.05  # of hit ratio: less than this lies between LRU and the optimum
MOST = 0.5  # of the removals

COMPULSORY = "compulsory"
MILDLY = "capacity-bound, mild"
HEAVILY = "capacity-bound, heavy"
TTL = "TTL-bound"
REGIMES = (COMPULSORY, MILDLY, HEAVILY, TTL)


def regime(lru: float, opt: float, infinite: float, by_ttl: float = 0.0) -> str:
    """Name the limit that binds.

    Parameters
    ----------
    lru, opt, infinite : float
        Hit ratios of LRU, the optimum and the infinite cache, all without a TTL; shares of 1.
    by_ttl : float
        Share of removals that the TTL makes, of 1; 0 for a server that runs none.

    Returns
    -------
    str
        One of `REGIMES`.
    """
    if by_ttl > MOST:
        return TTL
    if infinite - lru <= NEAR:
        return COMPULSORY
    return MILDLY if opt - lru < MILD else HEAVILY


def describe() -> dict[str, str]:
    """Return how to tell each regime, in words that are made from the rule's constants."""
    beyond = f"LRU more than {_points(NEAR)} below the infinite cache and"
    return {
        COMPULSORY: f"LRU within {_points(NEAR)} of the infinite cache",
        MILDLY: f"{beyond} less than {_points(MILD)} below the optimum",
        HEAVILY: f"{beyond} {_points(MILD)} or more below the optimum",
        TTL: f"the TTL makes more than {100 * MOST:g} % of the removals (looked at first)",
    }


def _points(share: float) -> str:
    return f"{100 * share:g} point{'' if share == 0.01 else 's'}"
