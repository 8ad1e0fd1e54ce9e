"""The incremental radix tree: chains in, nodes out.

Memory follows distinct blocks: a chain is compared with the edge labels
already stored, and only its unseen end is appended. Children are found in
one open-addressing table keyed by (parent node, first id).

A last block may be partial. Where `apart`, what it is includes how many tokens it holds, so the
same id with other tokens, or inside a longer chain, is another block; the table's keys then
include the tokens of a node's first block. Otherwise such a sighting is refused.
"""

import numpy as np
from numba import njit

from kvsim.traces.trace import Tree

# Outcomes of an insertion that are not a node.
FULL_BEFORE = -2
PARTIAL_BEFORE = -3
OTHER_TOKENS = -4

STEP = 32
PARENT, BEGIN, LENGTH, TAIL = range(4)


class RadixBuilder:
    """Grow a radix tree one chain at a time.

    Parameters
    ----------
    block_size : int
        Tokens of a full block.
    apart : bool
        Whether blocks of one id that hold different tokens are different blocks.
    """

    def __init__(self, block_size: int, apart: bool = False) -> None:
        self.block_size = block_size
        self.apart = apart
        self._nodes = np.empty((64, 4), dtype=np.int64)
        self._labels = np.empty(1024, dtype=np.int64)
        self._table = np.full(256, -1, dtype=np.int64)
        self._used = np.zeros(2, dtype=np.int64)  # nodes, labels

    def add(
        self,
        ids: np.ndarray,
        lengths: np.ndarray,
        tail_tokens: np.ndarray,
        *,
        namespace: int = 0,
        start: int = -1,
    ) -> np.ndarray:
        """Insert chains and return their terminal nodes (provisional numbers).

        Parameters
        ----------
        ids : int64[]
            Block ids of one chain after the other, each root first.
        lengths : int64[k]
            Blocks of each chain.
        tail_tokens : int64[k]
            Tokens of each chain's last block.
        namespace : int
            Chains of different namespaces share no block.
        start : int
            Node that the chains continue; -1 starts at the namespace's root.

        Returns
        -------
        int64[k]
            The terminal nodes; `start` for an empty chain; or, where a block's
            tokens disagree with its first sighting and the two are not kept apart,
            ``FULL_BEFORE``, ``PARTIAL_BEFORE`` or ``OTHER_TOKENS``.
        """
        self._reserve(len(lengths), len(ids))
        terminals = np.empty(len(lengths), dtype=np.int64)
        _insert_all(
            ids,
            lengths,
            tail_tokens,
            start if start >= 0 else -1 - namespace,
            self.block_size,
            self.apart,
            self._nodes,
            self._labels,
            self._table,
            self._used,
            terminals,
        )
        return terminals

    def finish(self) -> tuple[Tree, np.ndarray]:
        """Return the tree and the map int32[m + 1] from provisional to final nodes.

        The map's last entry is -1, so that it maps the empty chain too.
        """
        nodes = self._nodes[: self._used[0]]
        # A child's label begins after its parent's, whatever was split in between.
        ranking = np.argsort(nodes[:, BEGIN], kind="stable")
        index = np.full(len(nodes) + 1, -1, dtype=np.int32)
        index[ranking] = np.arange(len(nodes), dtype=np.int32)
        ordered = nodes[ranking]
        parent = index[np.maximum(ordered[:, PARENT], -1)]
        length, tail = ordered[:, LENGTH].astype(np.int32), ordered[:, TAIL].astype(np.int32)
        depth, tokens_above = _accumulate(parent, length, tail, self.block_size)
        return Tree(parent, length, depth, tokens_above, tail), index

    def told_apart(self) -> int:
        """Return how many partial blocks share parent and id with a block of other tokens."""
        nodes = self._nodes[: self._used[0]]
        partial = (nodes[:, LENGTH] == 1) & (nodes[:, TAIL] < self.block_size)
        first = np.column_stack([nodes[:, PARENT], self._labels[nodes[:, BEGIN]]])
        _, place, count = np.unique(first, axis=0, return_inverse=True, return_counts=True)
        return int((partial & (count[place] > 1)).sum())

    def _reserve(self, chains: int, blocks: int) -> None:
        nodes, labels = self._used.tolist()
        most = nodes + 2 * chains  # a chain adds a node and may split another one
        if most > len(self._nodes):
            self._nodes = np.resize(self._nodes, (2 * most, 4))
        if labels + blocks > len(self._labels):
            # Pages that nothing was written to take no memory.
            grown = np.empty(4 * (labels + blocks), dtype=np.int64)
            grown[:labels] = self._labels[:labels]
            self._labels = grown
        if 2 * most > len(self._table):
            self._table = np.full(1 << (2 * most).bit_length(), -1, dtype=np.int64)
            _rehash(self._nodes[:nodes], self._labels, self.block_size, self.apart, self._table)


@njit(cache=True)
def same_start(one, other):
    """Return how many entries two arrays begin with alike."""
    both = min(len(one), len(other))
    same = 0
    while same + STEP <= both:  # steps of a fixed length, so that the compiler uses vectors
        left, right = one[same : same + STEP], other[same : same + STEP]
        differ = False
        for j in range(STEP):
            differ |= left[j] != right[j]
        if differ:
            break
        same += STEP
    while same < both and one[same] == other[same]:
        same += 1
    return same


@njit(cache=True)
def _first_tokens(node, block_size, apart, nodes):
    """Return what of a node's key the tokens of its first block are; 0 where they do not count."""
    if not apart:
        return 0
    return nodes[node, TAIL] if nodes[node, LENGTH] == 1 else block_size


@njit(cache=True)
def _slot(above, label, tokens, block_size, apart, nodes, labels, table):
    mask = np.uint64(len(table) - 1)
    h = np.uint64(above) * np.uint64(0x9E3779B97F4A7C15) ^ np.uint64(label) ^ np.uint64(tokens)
    h = (h ^ (h >> np.uint64(32))) * np.uint64(0xD6E8FEB86659FD93)
    slot = (h ^ (h >> np.uint64(29))) & mask
    while table[slot] >= 0:
        node = table[slot]
        if (
            nodes[node, PARENT] == above
            and labels[nodes[node, BEGIN]] == label
            and _first_tokens(node, block_size, apart, nodes) == tokens
        ):
            break
        slot = (slot + np.uint64(1)) & mask
    return slot


@njit(cache=True)
def _own_slot(node, block_size, apart, nodes, labels, table):
    above, label = nodes[node, PARENT], labels[nodes[node, BEGIN]]
    tokens = _first_tokens(node, block_size, apart, nodes)
    return _slot(above, label, tokens, block_size, apart, nodes, labels, table)


@njit(cache=True)
def _rehash(nodes, labels, block_size, apart, table):
    for node in range(len(nodes)):
        table[_own_slot(node, block_size, apart, nodes, labels, table)] = node


@njit(cache=True)
def _new_node(nodes, used, parent, begin, length, tail):
    node = used[0]
    used[0] += 1
    nodes[node, PARENT] = parent
    nodes[node, BEGIN] = begin
    nodes[node, LENGTH] = length
    nodes[node, TAIL] = tail
    return node


@njit(cache=True)
def _split(child, at, slot, block_size, apart, nodes, labels, table, used):
    # The upper part gets the new number, so nodes that requests end in keep theirs.
    begin = nodes[child, BEGIN]
    upper = _new_node(nodes, used, nodes[child, PARENT], begin, at, block_size)
    table[slot] = upper
    nodes[child, PARENT] = upper
    nodes[child, BEGIN] = begin + at
    nodes[child, LENGTH] -= at
    table[_own_slot(child, block_size, apart, nodes, labels, table)] = child
    return upper


@njit(cache=True, nogil=True)
def _insert_all(
    ids, lengths, tail_tokens, above, block_size, apart, nodes, labels, table, used, terminals
):
    begin = 0
    for chain in range(len(lengths)):
        end = begin + lengths[chain]
        terminals[chain] = max(above, -1)
        if begin < end:
            terminals[chain] = _insert(
                ids[begin:end],
                above,
                tail_tokens[chain],
                block_size,
                apart,
                nodes,
                labels,
                table,
                used,
            )
        begin = end


@njit(cache=True)
def _insert(ids, above, tail_tokens, block_size, apart, nodes, labels, table, used):
    i = 0
    while i < len(ids):
        tokens = 0
        if apart:
            tokens = tail_tokens if i == len(ids) - 1 else block_size
        slot = _slot(above, ids[i], tokens, block_size, apart, nodes, labels, table)
        child = table[slot]
        if child < 0:
            begin = used[1]
            node = _new_node(nodes, used, above, begin, len(ids) - i, tail_tokens)
            while i < len(ids):  # compiles ten times faster than a slice assignment
                labels[used[1]] = ids[i]
                used[1] += 1
                i += 1
            table[slot] = node
            return node
        begin = nodes[child, BEGIN]
        length = nodes[child, LENGTH]
        k = same_start(labels[begin : begin + length], ids[i:])
        i += k
        outcome = 0
        if k < length:
            if i == len(ids) and tail_tokens != block_size:
                outcome = FULL_BEFORE
        elif i < len(ids):
            if nodes[child, TAIL] != block_size:
                outcome = PARTIAL_BEFORE
        elif nodes[child, TAIL] != tail_tokens:
            outcome = OTHER_TOKENS
        if outcome < 0:
            if not apart:
                return outcome
            # The last block that agrees in its id is another one. It is not the node's first,
            # whose tokens were looked up.
            i -= 1
            k -= 1
        if k < length:
            above = _split(child, k, slot, block_size, apart, nodes, labels, table, used)
        else:
            above = child
    return above


@njit(cache=True)
def _accumulate(parent, length, tail, block_size):
    depth = np.zeros(len(parent), dtype=np.int32)
    tokens_above = np.zeros(len(parent), dtype=np.int64)
    for node in range(len(parent)):
        up = parent[node]
        if up >= 0:
            depth[node] = depth[up] + length[up]
            tokens_above[node] = tokens_above[up] + (length[up] - 1) * block_size + tail[up]
    return depth, tokens_above
