"""SGLang's radix cache in plain objects, a block as the token: the twin of its strategies."""

from collections.abc import Callable, Sequence
from itertools import count, takewhile
from typing import Any

from kvsim.cache.reference import Request


class Node:
    """What one request added, or the part of it that a later request split off."""

    def __init__(self, parent: "Node | None", key: tuple[Any, ...], clock: "count[int]") -> None:
        self.parent = parent
        self.key = key
        self.access = next(clock)
        self.creation = next(clock)
        self.hits = 0
        self.locks = 0
        self.children: dict[Any, Node] = {}


def shared(one: tuple[Any, ...], other: tuple[Any, ...]) -> int:
    """Return how many leading items two keys share."""
    pairs = zip(one, other, strict=False)
    return len(list(takewhile(lambda pair: pair[0] == pair[1], pairs)))


STRATEGIES: dict[str, Callable[[Node], Any]] = {
    "sglang-lru": lambda node: node.access,
    "sglang-lfu": lambda node: (node.hits, node.access),
    "sglang-slru": lambda node: (node.hits >= 2, node.access),
}


class RadixCache:
    """The tree, and how a request changes it."""

    def __init__(self, capacity: int, strategy: str, surplus: bool = False) -> None:
        self.capacity = capacity
        self.key = STRATEGIES[strategy]
        self.surplus = surplus
        self.clock = count()
        self.root = Node(None, (), self.clock)
        self.inserted = self.evicted = 0

    def serve(self, chain: tuple[Any, ...]) -> int:
        """Process a request and return how many blocks it hit."""
        node, hits = self.walk(chain, hit=False)
        self.lock(node, 1)
        missing = len(chain) - hits
        free = self.capacity - (self.inserted - self.evicted)
        if missing > free:
            self.evict(missing if self.surplus else missing - free)
        fits = chain[: hits + self.capacity - (self.inserted - self.evicted)]
        self.insert(fits)
        self.lock(node, -1)
        return hits

    def walk(self, chain: tuple[Any, ...], hit: bool) -> tuple[Node, int]:
        """Follow a chain as far as it is stored; split the node that it leaves."""
        now = next(self.clock)
        node, depth = self.root, 0
        while depth < len(chain) and chain[depth] in node.children:
            node = node.children[chain[depth]]
            node.access = now
            same = shared(node.key, chain[depth:])
            depth += same
            if same < len(node.key):
                node = self.split(node, same)
            node.hits += hit
        return node, depth

    def split(self, lower: Node, at: int) -> Node:
        assert lower.parent
        upper = Node(lower.parent, lower.key[:at], self.clock)
        upper.hits, upper.locks = lower.hits, lower.locks
        lower.parent.children[upper.key[0]] = upper
        lower.parent, lower.key = upper, lower.key[at:]
        upper.children[lower.key[0]] = lower
        return upper

    def lock(self, node: Node | None, by: int) -> None:
        while node:
            node.locks += by
            node = node.parent

    def evict(self, blocks: int) -> None:
        freed = 0
        while freed < blocks and (leaves := self.evictable(self.root)):
            leaf = min(leaves, key=self.key)
            assert leaf.parent
            del leaf.parent.children[leaf.key[0]]
            freed += len(leaf.key)
        self.evicted += freed

    def evictable(self, node: Node) -> list[Node]:
        below = [leaf for child in node.children.values() for leaf in self.evictable(child)]
        alone = not node.children and not node.locks and node is not self.root
        return below + [node] * alone

    def insert(self, chain: tuple[Any, ...]) -> None:
        node, depth = self.walk(chain, hit=True)
        if depth < len(chain):
            new = node.children[chain[depth]] = Node(node, chain[depth:], self.clock)
            new.hits = 1
            self.inserted += len(new.key)


def simulate(
    requests: Sequence[Request], capacity: int, strategy: str, surplus: bool = False
) -> tuple[list[int], int, int]:
    """Return the hit blocks of each request, and the blocks inserted and evicted."""
    cache = RadixCache(capacity, strategy, surplus)
    hits = [
        cache.serve(tuple((request.namespace, name) for name in request.chain))
        for request in requests
    ]
    return hits, cache.inserted, cache.evicted
