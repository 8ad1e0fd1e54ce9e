"""Eviction policies: one file a policy and one line in `POLICIES`.

Installed packages add theirs by entry points of the group ``kvsim.policies``, whose name is the
policy's and whose value the `Policy`, in ``pyproject.toml``::

    [project.entry-points."kvsim.policies"]
    fading = "package.module:POLICY"
"""

import difflib
from collections.abc import Iterable
from importlib.metadata import EntryPoint
from pathlib import Path

from kvsim.cache import outside
from kvsim.cache.bounds import BOUNDS
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


def known() -> dict[str, Policy]:
    """Return the policies of the package and of installed packages, which are loaded.

    Raises
    ------
    TraceError
        If a package registers a policy that does not load or takes a name of another's.
    """
    return POLICIES | {name: outside.of_entry(entry) for name, entry in _registered().items()}


def names() -> list[str]:
    """Return all names that stand for a policy or a bound; nothing is loaded.

    Raises
    ------
    TraceError
        If an installed package takes a name of another's.
    """
    return [*POLICIES, *_registered(), *BOUNDS]


def get(name: str) -> Policy:
    """Return the known policy `name`, in upper or lower case, or the POLICY of a ``.py`` file.

    Raises
    ------
    TraceError
        If there is none, it does not load, or a file's policy has the name of a known one.
    """
    if not isinstance(name, str):
        raise TraceError(f"policy {name!r}: must be a name or the path of a .py file")
    if name.endswith(".py"):
        policy = outside.of_file(Path(name))
        return POLICIES[policy.name] if _is_known(policy) else policy
    registered = _registered()
    name = _spelt(name)
    if name in BOUNDS:
        raise TraceError(f"policy {name!r} is a bound, which has no policy; simulate it by name")
    return POLICIES[name] if name in POLICIES else outside.of_entry(registered[name])


def chosen(policies: Iterable[str | Policy]) -> dict[str, str | Policy]:
    """Return policies and bounds by name, in order; one that is given twice counts once.

    Known ones are their names, which are looked up where they run; files and objects are policies.

    Raises
    ------
    TraceError
        If one is unknown or does not load, or two of different rules have one name.
    """
    found: dict[str, str | Policy] = {}
    spelt: dict[str, str] = {}
    for given in policies:
        policy = _resolved(given)
        name = policy if isinstance(policy, str) else policy.name
        other = found.setdefault(spelt.setdefault(name.lower(), name), policy)
        if isinstance(policy, Policy) and other is not policy:
            raise _two_of(name, other, policy)
    return found


def _resolved(given: str | Policy) -> str | Policy:
    """Return the name of what is known, the policy of what is not."""
    if isinstance(given, str) and not given.endswith(".py"):
        return _spelt(given)
    policy = given if isinstance(given, Policy) else get(given)
    return policy.name if _is_known(policy) else policy


def _is_known(policy: Policy) -> bool:
    """Return whether a policy is the known one of its name; another one may not have the name."""
    name = policy.name.lower()
    for other in names():
        if other.lower() == name:
            if other not in BOUNDS and get(other) is policy:
                return True
            raise _two_of(policy.name, other, policy)
    return False


def _two_of(name: str, first: str | Policy, second: Policy) -> TraceError:
    return TraceError(
        f"policy {name!r} is the name of two: {_origin(first)} and {outside.origin(second)}; "
        "give one another name"
    )


def _origin(policy: str | Policy) -> str:
    if isinstance(policy, Policy):
        return outside.origin(policy)
    entry = _registered().get(policy)
    return outside.package_of(entry) if entry else "kvsim's own"


def _registered() -> dict[str, EntryPoint]:
    """Return the entry points of other packages, none of which has a name of the package's own."""
    registered = outside.registered()
    for name, entry in registered.items():
        if name.lower() in {**POLICIES, **BOUNDS}:
            raise TraceError(
                f"policy {name!r} is the name of two: kvsim's own and that of "
                f"{outside.package_of(entry)}, which must rename it or be uninstalled"
            )
    return registered


def _spelt(name: str) -> str:
    """Return a name as it is known, whatever its case."""
    by_case = {other.lower(): other for other in names()}
    if name.lower() not in by_case:
        close = difflib.get_close_matches(name.lower(), by_case, 1)
        hint = f"; did you mean {by_case[close[0]]!r}?" if close else ";"
        raise TraceError(f"policy {name!r} is unknown{hint} known: {', '.join(names())}")
    return by_case[name.lower()]
