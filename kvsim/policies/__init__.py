"""Eviction policies: one file a policy and one line in `POLICIES`."""

from kvsim.engine import Policy
from kvsim.policies import (
    belady,
    depth,
    fifo,
    filo,
    gdsf,
    hazard,
    hyperbolic,
    lfu,
    lfu_da,
    lhd,
    lirs,
    lru,
    lru_k,
    mru,
    random,
    vllm,
)
from kvsim.trace import TraceError

POLICIES: dict[str, Policy] = {
    "lru": lru.POLICY,
    "fifo": fifo.POLICY,
    "lfu": lfu.POLICY,
    "random": random.POLICY,
    "belady": belady.POLICY,
    "mru": mru.POLICY,
    "filo": filo.POLICY,
    "depth": depth.POLICY,
    "lru-k": lru_k.POLICY,
    "lirs": lirs.POLICY,
    "lfu-da": lfu_da.POLICY,
    "gdsf": gdsf.POLICY,
    "hyperbolic": hyperbolic.POLICY,
    "lhd": lhd.POLICY,
    "vllm": vllm.POLICY,
    "h": hazard.H,
    "c": hazard.C,
    "g": hazard.G,
    "hc": hazard.HC,
    "hg": hazard.HG,
    "cg": hazard.CG,
    "hcg": hazard.HCG,
}


def get(name: str) -> Policy:
    """Return the registered policy `name`.

    Raises
    ------
    TraceError
        If there is none; the message lists the known names.
    """
    if name not in POLICIES:
        raise TraceError(f"policy {name!r} is unknown; known: {', '.join(POLICIES)}, opt")
    return POLICIES[name]
