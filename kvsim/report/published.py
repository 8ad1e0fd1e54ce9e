"""Published figures, to stand beside ours and never to tune to."""

from typing import NamedTuple

import pandas as pd


class Published(NamedTuple):
    """A figure that somebody else found on other data.

    Attributes
    ----------
    quantity : str
        Key of our figure beside it.
    value : float
        In the unit that the key ends in; shares of 1.
    source : str
        Who says so.
    """

    quantity: str
    value: float
    source: str


STUDY_CORPUS_REQUESTS = 68_266
STUDY = f"the study (its own corpus, {STUDY_CORPUS_REQUESTS:,} requests)"
AGENTSYSBENCH = "AgentSysBench (arXiv 2608.15127, as summarised elsewhere)"

CHARACTERIZATION = (
    Published("gap_p50_s", 2.1, STUDY),
    Published("gap_p90_s", 51.1, STUDY),
    Published("gap_p99_s", 3426.3, STUDY),
    Published("gap_max_s", 491_922.0, STUDY),
    Published("gap_over_60_s_share", 0.095, STUDY),
    Published("gap_over_3600_s_share", 0.010, STUDY),
    Published("span_p50_h", 1.84, STUDY),
    Published("span_p90_h", 28.36, STUDY),
    Published("span_max_h", 254.8, STUDY),
    Published("duty_p25_share", 0.034, STUDY),
    Published("duty_p50_share", 0.139, STUDY),
    Published("duty_p75_share", 0.339, STUDY),
    Published("below_half_share", 0.855, STUDY),
    Published("duty_p50_share", 0.20, AGENTSYSBENCH),
)

# The study's headline: recompute by the gap before the request, as shares; its rows sum to
# 0.780. Bucket names are those of kvsim.analysis.gaps.
STUDY_GAP_SHARES = {
    "< 10 s": 0.331,
    "10-60 s": 0.070,
    "1-5 min": 0.205,
    "5-30 min": 0.086,
    "30-60 min": 0.030,
    ">= 1 h": 0.058,
}
STUDY_OVER_5_MIN = 0.175
STUDY_REQUESTS = 12_091
STUDY_WORKING_SET_TOKENS = 10_700_000
STUDY_BLOCKS = 40_000  # of 64 tokens


# Of the corpora as published; the repository's data/README.md says where.
WEKA_SESSIONS = {"used": 710, "published": 739, "distinct": 692}
AGENTX_REQUESTS = {"all": 98_827, "main": 56_798}
MOONCAKE_REPORT_REQUESTS = 23_608


def corpus_words() -> dict[str, str]:
    """Return the sizes of corpora that the prose names."""
    weka = {f"weka_sessions_{name}": f"{count:,}" for name, count in WEKA_SESSIONS.items()}
    agentx = {f"agentx_{name}": f"{count:,}" for name, count in AGENTX_REQUESTS.items()}
    return {
        **weka,
        **agentx,
        "study_corpus": f"{STUDY_CORPUS_REQUESTS:,}",
        "report_requests": f"{MOONCAKE_REPORT_REQUESTS:,}",
    }


class RecomputeShare(NamedTuple):
    """A share that recompute has of something; only together with its denominator and regime."""

    source: str
    numerator: str
    denominator: str
    regime: str
    share: float


RECOMPUTE_SHARES = (
    RecomputeShare(
        AGENTSYSBENCH,
        "tokens created again after eviction",
        "cache-creation tokens",
        "5-minute provider TTL",
        0.559,
    ),
    RecomputeShare(
        AGENTSYSBENCH, "cost that eviction causes", "cost", "5-minute provider TTL", 0.315
    ),
    RecomputeShare(
        STUDY,
        "recompute after gaps over 5 min",
        "not stated: rows sum to 78 %",
        f"capacity-bound: {STUDY_BLOCKS:,} blocks, working set of 10.7 M tokens",
        STUDY_OVER_5_MIN,
    ),
)
PROVIDER_TTL = 300.0  # seconds; a hit refreshes it
# Prices in units of an uncached input token (Anthropic, as summarised elsewhere).
CACHE_WRITE_PRICE = 1.25  # 5-minute TTL
CACHE_READ_PRICE = 0.1

# Mooncake technical report (arXiv 2407.00079), Table 1: block hit rate by capacity in blocks.
MOONCAKE_CAPACITIES = ("1k", "10k", "30k", "50k", "100k", "∞")
REPLAY = "LRU, leaf (independent replay)"
MOONCAKE_TABLE_1 = {
    "LRU": (0.30, 0.40, 0.48, 0.50, 0.51, 0.51),
    "LFU": (0.30, 0.35, 0.43, 0.49, 0.51, 0.51),
    "LengthAware": (0.30, 0.35, 0.42, 0.48, 0.50, 0.51),
    # Somebody else's replay of the 23,608-request trace.
    REPLAY: (0.341, 0.460, 0.537, 0.551, 0.552, 0.553),
}
# FAST'25, Table 2: "cache ratio" of the infinite cache; the definition is not given.
FAST25_CACHE_RATIO = {"conversation": 0.40, "toolagent": 0.59, "synthetic": 0.66}
MOONCAKE_TRACES = (*FAST25_CACHE_RATIO, "mooncake-report", "mooncake-report-first")


def mooncake_table_1() -> pd.DataFrame:
    """Return Table 1 of the Mooncake report, a row a policy and a column a capacity."""
    return pd.DataFrame.from_dict(
        MOONCAKE_TABLE_1, orient="index", columns=list(MOONCAKE_CAPACITIES)
    )


# The study's ablation on 40 sampled sessions, as its two tables print it: hit ratio, and cost
# relative to LRU-leaf (1 - cost / cost of LRU, negative is worse). Keys are names of policies here.
STUDY_CAPACITIES = (8_000, 20_000, 50_000)  # blocks
STUDY_HIT_RATIOS = {
    "lru": (0.8348, 0.9392, 0.9576),
    "ttl-300": (0.8348, 0.9392, 0.9576),
    "lfu": (0.6361, 0.6996, 0.7958),
    "h": (0.8289, 0.9361, 0.9568),
    "hc": (0.7177, 0.8486, 0.9445),
    "hcg": (0.6863, 0.7889, 0.9140),
}
STUDY_SAVINGS = {
    "lfu": (-1.297, -4.343, -4.471),
    "h": (-0.032, -0.045, -0.010),
    "hc": (-0.389, -0.904, -0.154),
    "hcg": (-0.810, -2.078, -0.668),
}


def study_ablation() -> pd.DataFrame:
    """Return the study's ablation, a row a policy and capacity.

    Columns: policy, capacity (blocks), hit_ratio, saving (NaN where it prints none).
    """
    rows = [
        {
            "policy": policy,
            "capacity": capacity,
            "hit_ratio": ratios[place],
            "saving": STUDY_SAVINGS.get(policy, (float("nan"),) * 3)[place],
        }
        for policy, ratios in STUDY_HIT_RATIOS.items()
        for place, capacity in enumerate(STUDY_CAPACITIES)
    ]
    return pd.DataFrame(rows)


# What papers claim over their baselines, on their own traces; never comparable one to one.
CLAIMS = {
    "unicache": "+3.9 to +17.3 % hit rate (SIGMETRICS'26; seen in a secondary summary)",
    "wa": "vLLM PR 22236: .1175 to .1381 at 1k blocks, .2498 to .2560 at 8k (ATC'25)",
    "t-lru": "aims at tail latency, not at hits (arXiv 2510.15152)",
    "rlt": "O(log n)-competitive (ICLR'26, arXiv 2601.18999)",
    "lpc": "learned prefix reuse; needs prompt text, here an oracle (NeurIPS'25)",
    "marconi": "FLOPs saved, not only hits (MLSys'25, arXiv 2411.19379)",
    "continuum": "job latency under tool calls (arXiv 2511.02230)",
    "kvflow": "needs the workflow graph, here an oracle (NeurIPS'25, arXiv 2507.07400)",
    "pgdsf": "RAGCache, documents of unequal cost (arXiv 2404.12457)",
}
