"""Identifiers as words: what a page calls columns, quantities and policies."""

import re

WORDS = {
    "at": "modes at",
    "gain_high_pp": "gain, high",
    "gain_low_pp": "gain, low",
    "gain_pp": "gain over LRU",
    "hit_gain": "gain over LRU",
    "lru_ratio": "LRU hit ratio",
    "of": "out of",
    "opt_ratio": "OPT hit ratio",
    "policy_ratio": "policy's hit ratio",
}
TOKENS = {
    "gb": "GB",
    "lfu": "LFU",
    "lru": "LRU",
    "max": "largest",
    "opt": "OPT",
    "p10": "10th percentile",
    "p25": "25th percentile",
    "p50": "median",
    "p75": "75th percentile",
    "p90": "90th percentile",
    "p99": "99th percentile",
    "pflop": "PFLOP",
    "ttl": "TTL",
}
# Policies that the prose calls by other names than the registry does.
POLICIES = {"belady": "Belady", "fifo": "FIFO", "lfu": "LFU", "lru": "LRU", "opt": "OPT"}
IDENTIFIER = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)+")


def words(name: str) -> str:
    """Return an identifier as words, without its unit; other text stays as it is."""
    if name in WORDS:
        return WORDS[name]
    if name in TOKENS:
        return TOKENS[name]
    if not IDENTIFIER.fullmatch(name):
        return name
    return " ".join(
        TOKENS.get(part, part) for part in re.sub(r"_(s|h|pp|share)$", "", name).split("_")
    )


def value_words(value: str) -> str:
    """Return the value of a cell or the name of a line as words."""
    if value in POLICIES:
        return POLICIES[value]
    return words(value) if IDENTIFIER.fullmatch(value) else value
