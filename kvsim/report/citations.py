"""What each policy and trace rests on, by keys of the book's bibliography."""

# A policy without a key is a classic without one source, and says so in NO_SOURCE.
POLICIES: dict[str, tuple[str, ...]] = {
    "lru": ("mattson1970", "vllm2023", "sglang2023"),
    "belady": ("belady1966",),
    "mru": ("sglang2023",),
    "filo": ("sglang2023",),
    "lru-k": ("lruk1993",),
    "lirs": ("lirs2002",),
    "lfu-da": ("lfuda2000",),
    "gdsf": ("gdsf1998",),
    "hyperbolic": ("hyperbolic2017",),
    "lhd": ("lhd2018",),
    "slru": ("slru1994",),
    "2q": ("twoq1994",),
    "arc": ("arc2003",),
    "s3-fifo": ("s3fifo2023",),
    "sieve": ("sieve2024",),
    "w-tinylfu": ("tinylfu2017",),
    "lecar": ("lecar2018",),
    "vllm": ("vllm2023",),
    "sglang-lru": ("sglang2023",),
    "sglang-lfu": ("sglang2023",),
    "sglang-slru": ("sglang2023",),
    **dict.fromkeys(("h", "c", "g", "hc", "hg", "cg", "hcg"), ("study2026",)),
    "liveness": ("gittins1979", "lhd2018"),
    "length-aware": ("mooncake2024",),
    "pgdsf": ("ragcache2024",),
    "t-lru": ("tlru2025",),
    "rlt": ("rlt2026",),
    "wa": ("wild2025",),
    "unicache": ("unicache2026",),
    "marconi": ("marconi2024",),
    "continuum": ("continuum2025",),
    "kvflow": ("kvflow2025",),
    "lpc": ("lpc2025",),
}

NO_SOURCE: dict[str, str] = {
    "fifo": "classic",
    "lfu": "classic",
    "random": "classic",
    "depth": "classic control",
}

TRACES: dict[str, tuple[str, ...]] = {
    "conversation": ("mooncake2025",),
    "synthetic": ("mooncake2025",),
    "toolagent": ("mooncake2025",),
    "mooncake-report": ("mooncake2024",),
    "mooncake-report-first": ("mooncake2024",),
    "weka": ("kvcachetester",),
    "weka-739": ("kvcachetester",),
    **dict.fromkeys(
        (
            "agentx-062126",
            "agentx-042026",
            "agentx-no-subagents-051826",
            "agentx-with-subagents-051926",
            "agentx-061326",
            "agentx-061526",
        ),
        ("agentx2026",),
    ),
}


def counted() -> tuple[int, int]:
    """Return how many policies cite a source, and how many works they cite."""
    return len(POLICIES), len({key for keys in POLICIES.values() for key in keys})
