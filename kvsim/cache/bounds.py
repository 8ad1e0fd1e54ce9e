"""What no policy can beat: the optimum with bypass, and the infinite cache."""

import heapq

import numpy as np
from numba import njit

from kvsim.cache.capacity import parse
from kvsim.cache.engine import Switches
from kvsim.cache.result import Result, cap_hits, counted
from kvsim.cache.warmup import first_measured
from kvsim.traces.trace import Trace, accesses_by_node, on_one_clock

NEVER = 2**31 - 1


def opt(
    trace: Trace,
    capacity: int | str,
    switches: Switches = Switches(),
    *,
    bytes_per_token: float | str | None = None,
    measure_from: str | int = 0,
) -> Result:
    """Return the hits of Belady with bypass, the optimum in uncapped hit blocks.

    After each request keep the `capacity` blocks whose next use is nearest,
    the deepest dropped first among ties. On prefix trees of equal blocks this is
    the exact optimum (checked by exhaustive search in the tests). It bounds
    neither tokens nor capped hits.

    After a warm-up it is the most that any cache can hit from there on. Until then it keeps the
    blocks whose first counted use is nearest, and may drop a block before its children: so it
    bounds caches that are prefix-closed, but they need not reach it.

    Parameters
    ----------
    trace : Trace
        The requests.
    capacity : int or str
        Blocks, or as `kvsim.cache.capacity.parse` takes it.
    switches : Switches
        Only the hit cap applies; the optimum is over all caches.
    bytes_per_token : float or str, optional
        KV bytes of a token, or a model's name, for a capacity given as memory.
    measure_from : str or int
        Count hits only from there on, see `kvsim.cache.warmup.first_measured`. Requests before
        it have none in the result.

    Raises
    ------
    TraceError
        If the trace is on no common clock, or an argument makes no sense.
    """
    on_one_clock(trace)
    blocks = parse(capacity, trace, bytes_per_token)
    first = first_measured(trace, measure_from)
    hits = np.zeros((2, trace.requests), dtype=np.int64)
    _belady_with_bypass(
        *(trace.terminal, *trace.tree, trace.block_size, *accesses_by_node(trace)),
        *(blocks, first, hits),
    )
    return cap_hits(counted(trace, "opt", blocks, hits[0], hits[1], first=first), switches.hit_cap)


def infinite(
    trace: Trace,
    capacity: int | str,
    switches: Switches = Switches(),
    *,
    bytes_per_token: float | str | None = None,
    measure_from: str | int = 0,
) -> Result:
    """Return the hits of a cache that never evicts; `capacity` is only its label."""
    blocks = parse(capacity, trace, bytes_per_token)
    first = first_measured(trace, measure_from)
    hits = (trace.seen_blocks, trace.seen_tokens)
    return cap_hits(counted(trace, "infinite", blocks, *hits, first=first), switches.hit_cap)


BOUNDS = {"opt": opt, "infinite": infinite}


@njit(cache=True, nogil=True)
def _belady_with_bypass(
    terminal,
    parent,
    length,
    depth,
    tokens_above,
    tail,
    block_size,
    start,
    uses,
    capacity,
    first,
    hits,
):
    resident = np.zeros(len(parent), dtype=np.int64)
    children = np.zeros(len(parent), dtype=np.int64)  # with a resident block
    following = start[:-1].copy()  # index in `uses` of the node's next use
    leaves = [np.int64(0)]  # heap of (next use, node) packed, farthest first
    leaves.pop()
    used = 0
    for now in range(len(terminal)):
        node = terminal[now]
        reached = node  # deepest node that the resident prefix reaches into
        while node >= 0:
            following[node] += 1
            if resident[node] < length[node]:
                reached = node
            node = parent[node]
        if reached < 0:
            continue
        if now >= first:
            hits[0, now] = depth[reached] + resident[reached]
            hits[1, now] = tokens_above[reached] + resident[reached] * block_size
            if resident[reached] == length[reached]:
                hits[1, now] += tail[reached] - block_size
        node = terminal[now]
        while node >= 0 and resident[node] < length[node]:
            if following[node] < start[node + 1] and uses[following[node]] < first:
                break  # used again before hits count, and so is all above it: insert it then
            if resident[node] == 0 and parent[node] >= 0:
                children[parent[node]] += 1
            used += length[node] - resident[node]
            resident[node] = length[node]
            node = parent[node]
        node = np.int64(terminal[now])
        while True:
            if node >= 0 and resident[node] > 0 and children[node] == 0:
                following_use = np.int64(NEVER)
                if following[node] < start[node + 1]:
                    following_use = np.int64(uses[following[node]])
                heapq.heappush(leaves, -((following_use << 32) | node))
            if used <= capacity:
                break
            packed = -heapq.heappop(leaves)
            node = packed & 0xFFFFFFFF
            expected = packed >> 32
            following_use = np.int64(NEVER)
            if following[node] < start[node + 1]:
                following_use = np.int64(uses[following[node]])
            if resident[node] == 0 or children[node] > 0 or following_use != expected:
                node = np.int64(-1)
                continue
            dropped = min(resident[node], used - capacity)
            resident[node] -= dropped
            used -= dropped
            if resident[node] == 0:
                node = np.int64(parent[node])
                if node >= 0:
                    children[node] -= 1
