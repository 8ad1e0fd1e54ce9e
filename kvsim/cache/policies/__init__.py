"""Eviction policies: one file a policy and one line in `POLICIES`."""

import importlib.util
from pathlib import Path

from kvsim.cache.policies import (
    arc,
    belady,
    continuum,
    depth,
    fifo,
    filo,
    gdsf,
    hazard,
    hyperbolic,
    kvflow,
    lecar,
    length_aware,
    lfu,
    lfu_da,
    lhd,
    lirs,
    liveness,
    lpc,
    lru,
    lru_k,
    marconi,
    mru,
    pgdsf,
    random,
    rlt,
    s3_fifo,
    sglang,
    sieve,
    slru,
    t_lru,
    two_q,
    unicache,
    vllm,
    w_tinylfu,
    wa,
)
from kvsim.cache.policy import Policy
from kvsim.traces.trace import TraceError

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
    "slru": slru.POLICY,
    "2q": two_q.POLICY,
    "arc": arc.POLICY,
    "s3-fifo": s3_fifo.POLICY,
    "sieve": sieve.POLICY,
    "w-tinylfu": w_tinylfu.POLICY,
    "lecar": lecar.POLICY,
    "vllm": vllm.POLICY,
    "sglang-lru": sglang.BY_LRU,
    "sglang-lfu": sglang.BY_LFU,
    "sglang-slru": sglang.BY_SLRU,
    "h": hazard.H,
    "c": hazard.C,
    "g": hazard.G,
    "hc": hazard.HC,
    "hg": hazard.HG,
    "cg": hazard.CG,
    "hcg": hazard.HCG,
    "liveness": liveness.POLICY,
    "length-aware": length_aware.POLICY,
    "pgdsf": pgdsf.POLICY,
    "t-lru": t_lru.POLICY,
    "rlt": rlt.POLICY,
    "wa": wa.POLICY,
    "unicache": unicache.POLICY,
    "marconi": marconi.POLICY,
    "continuum": continuum.POLICY,
    "kvflow": kvflow.POLICY,
    "lpc": lpc.POLICY,
}


# Published rules that are not here, and why.
LEFT_OUT: dict[str, str] = {
    "SAECache (2605.18825)": "its weights are a request type's, which no trace marks, and are not "
    "given in what we could read; without them it is UniCache's score over the idle time",
    "UniCache's evict-first queue": "holds blocks of answers and of single turns without a "
    "template; no trace marks either",
    "Marconi's tuning of alpha": "by replay of the cache inside the cache; alpha is a parameter",
    "LPC's predictor": "reads the prompt's text, which traces lack; an oracle of given accuracy "
    "stands in",
    "Pensieve (EuroSys'25)": "evicts leading chunks, which a prefix-closed cache cannot hold",
}


def get(name: str) -> Policy:
    """Return the registered policy `name`, or the POLICY of a ``.py`` file.

    Raises
    ------
    TraceError
        If there is none; the message lists the known names.
    """
    if name.endswith(".py"):
        return _of_file(Path(name))
    if name not in POLICIES:
        raise TraceError(f"policy {name!r} is unknown; known: {', '.join(POLICIES)}, opt")
    return POLICIES[name]


def _of_file(path: Path) -> Policy:
    if not path.is_file():
        raise TraceError(f"policy {path}: no such file")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None  # the suffix is one that Python loads
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # whatever a user's file may raise
        raise TraceError(f"policy {path}: {type(error).__name__}: {error}") from error
    policy = getattr(module, "POLICY", None)
    if not isinstance(policy, Policy):
        raise TraceError(f"policy {path}: must define POLICY, a kvsim.cache.policy.Policy")
    return policy
