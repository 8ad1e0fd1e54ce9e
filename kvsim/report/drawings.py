"""A prefix tree drawn request by request, as the reference simulator leaves it."""

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kvsim.cache.reference import Block, Cache, Policy, Request, blocks_of, simulate

ASSETS = Path(__file__).parent / "assets"
PROMPTS = ("ABC", "DEFG", "ABCHI", "ABCH", "AB", "AJKL", "ABC")  # a letter a block
CAPACITY = 6  # blocks
VARIANTS: dict[str, Mapping[str, Any]] = {
    "as it is: prefix hits, leaf eviction, pins": {},
    "any block may go": {"eviction": "flat"},
    "any block may go, and hits behind gaps count": {"eviction": "flat", "hits": "set"},
    "no pins": {"pinning": False},
    "no pins, and hits behind gaps count": {"pinning": False, "hits": "set"},
}
ACROSS, DOWN, RADIUS = 66, 44, 16  # pixels between blocks, and of one


class Fifo(Policy):
    """The block inserted longest ago goes first."""

    def rank(self, block: Block) -> tuple[int, int]:
        """Return the request that inserted the block, and its place: a chain enters root first."""
        return block.inserted, block.depth


@dataclass(eq=False)
class Witness(Fifo):
    """The same, writing down what happens during a request."""

    inserted: list[Block] = field(default_factory=list)
    removed: list[Block] = field(default_factory=list)

    def on_insert(self, block: Block) -> None:
        """Write down an insertion."""
        self.inserted.append(block)

    def on_remove(self, block: Block, expired: bool) -> None:
        """Write down an eviction."""
        self.removed.append(block)


@dataclass(frozen=True)
class Frame:
    """What one request did; blocks by letter."""

    chain: str
    hits: str
    inserted: str
    removed: str
    resident: str


def requests(prompts: Sequence[str] = PROMPTS) -> list[Request]:
    """Return prompts of one-token blocks, a second apart, as requests."""
    return [Request(float(now), tuple(chain), len(chain)) for now, chain in enumerate(prompts)]


def frames(prompts: Sequence[str] = PROMPTS, capacity: int = CAPACITY) -> list[Frame]:
    """Return what the reference simulator does at each request, FIFO among the leaves."""
    rows = requests(prompts)
    known: dict[Any, Block] = {}
    witness = Witness()
    cache = Cache(witness, rows, capacity)
    found = []
    for now, row in enumerate(rows):
        witness.inserted, witness.removed = [], []
        chain = blocks_of(row, now, 1, known)
        hits = cache.serve(now, chain)
        name = {block: str(key[1]) for key, block in known.items()}
        parts = (chain, hits, witness.inserted, witness.removed, cache.resident)
        chain_, hits_, inserted, removed, resident = (
            "".join(name[block] for block in part) for part in parts
        )
        found.append(Frame(chain_, hits_, inserted, removed, "".join(sorted(resident))))
    return found


def outcomes(prompts: Sequence[str] = PROMPTS, capacity: int = CAPACITY) -> dict[str, int]:
    """Return the hit blocks of each variant of the cache."""
    return {
        name: sum(
            count.hit_blocks
            for count in simulate(requests(prompts), 1, capacity, Fifo(), **switches)[0]
        )
        for name, switches in VARIANTS.items()
    }


def prefix_tree(prompts: Sequence[str] = PROMPTS, capacity: int = CAPACITY) -> str:
    """Return HTML that steps through the requests, and counts hits without each property.

    A letter stands for one block, under the same parent wherever it is. Without scripts, and in
    print, all frames are seen.
    """
    steps = frames(prompts, capacity)
    parents = {
        letter: chain[place - 1] if place else ""
        for chain in prompts
        for place, letter in enumerate(chain)
    }
    places = _places(parents)
    items = "".join(
        f"<li><figure>{_tree(step, parents, places, sentence)}<figcaption>{html.escape(sentence)}"
        "</figcaption></figure></li>"
        for number, step in enumerate(steps, 1)
        for sentence in [_sentence(number, step, capacity)]
    )
    rows = "".join(
        f"<tr><th scope='row'>{name}</th><td>{hits}</td></tr>"
        for name, hits in outcomes(prompts, capacity).items()
    )
    asked = sum(map(len, prompts))
    return (
        f"<style>{_asset('drawing.css')}</style><div class='kvt'>"
        f"<p class='kvt-keys'>A cache of {capacity} blocks; first in, first out among what may go. "
        "Filled: resident. Thick ring: pinned, the chain of the request. ✓: hit. +: inserted. "
        "×: evicted. Dashed: not resident. A leaf is a filled block without a filled child.</p>"
        "<nav aria-label='Requests'><button type='button'>Previous</button>"
        "<button type='button'>Next</button><span role='status'></span></nav>"
        f"<ol>{items}</ol></div>"
        f"<table class='kvt-hits'><caption>Hits among the {asked} blocks asked for, with a "
        "property switched off</caption><thead><tr><th scope='col'>cache</th>"
        "<th scope='col'>hit blocks</th></tr>"
        f"</thead><tbody>{rows}</tbody></table><script>{_asset('drawing.js')}</script>"
    )


def _places(parents: Mapping[str, str]) -> dict[str, tuple[float, float]]:
    """Return where blocks are drawn: leaves side by side, parents above the middle of children."""
    places: dict[str, tuple[float, float]] = {}
    column = 0

    def put(letter: str, depth: int) -> float:
        nonlocal column
        below = [put(child, depth + 1) for child, parent in parents.items() if parent == letter]
        if not below:
            column += 1
        across = (below[0] + below[-1]) / 2 if below else column
        places[letter] = (ACROSS * (across - 0.6), DOWN * (depth + 0.5))
        return across

    for letter, parent in parents.items():
        if not parent:
            put(letter, 0)
    return places


def _tree(
    step: Frame,
    parents: Mapping[str, str],
    places: Mapping[str, tuple[float, float]],
    sentence: str,
) -> str:
    parts = [
        f'<line x1="{places[parent][0]:g}" y1="{places[parent][1]:g}" x2="{places[letter][0]:g}" '
        f'y2="{places[letter][1]:g}" stroke="var(--soft)"/>'
        for letter, parent in parents.items()
        if parent
    ]
    parts += [_block(step, letter, *place) for letter, place in places.items()]
    width = max(x for x, _ in places.values()) + ACROSS / 2 + 6
    height = max(y for _, y in places.values()) + DOWN / 2
    return (
        f'<svg viewBox="0 0 {width:g} {height:g}" role="img" aria-label="{html.escape(sentence)}">'
        f"{''.join(parts)}</svg>"
    )


def _block(step: Frame, letter: str, x: float, y: float) -> str:
    color, mark = "--soft", ""
    for blocks, ink, sign in (
        (step.hits, "--hit", "✓"),
        (step.inserted, "--new", "+"),
        (step.removed, "--gone", "×"),
    ):
        if letter in blocks:
            color, mark = ink, sign
    edge, fill, ink = f"var({color})", "var(--field)", f"var({color})"
    if letter in step.resident:
        fill, ink = edge, fill
    dashes = "" if letter in step.resident else ' stroke-dasharray="4 3"'
    circle = f'<circle cx="{x:g}" cy="{y:g}"'
    parts = [f'{circle} r="{RADIUS}" fill="{fill}" stroke="{edge}" stroke-width="1.5"{dashes}/>']
    if letter in step.chain:
        ring = f'r="{RADIUS + 3}" fill="none" stroke="var(--ink)" stroke-width="2.5"'
        parts.append(f"{circle} {ring}/>")
    parts.append(
        f'<text x="{x:g}" y="{y + 5:g}" text-anchor="middle" font-size="15" fill="{ink}">'
        f"{letter}</text>"
    )
    if mark:
        parts.append(
            f'<text x="{x + RADIUS + 6:g}" y="{y + 5:g}" font-size="16" font-weight="700" '
            f'fill="{edge}">{mark}</text>'
        )
    return "".join(parts)


def _sentence(number: int, step: Frame, capacity: int) -> str:
    told = [f"Request {number} asks for the chain {_list(step.chain)} and pins it."]
    told.append(f"It hits {_list(step.hits)}." if step.hits else "It hits nothing.")
    if step.removed:
        gone = ", ".join(step.removed)
        how = "a leaf, goes" if len(step.removed) == 1 else "leaf after leaf, go"
        told.append(f"There is no room for the rest, so {gone}, {how}.")
    if step.inserted:
        told.append(
            f"{_list(step.inserted)} {'is' if len(step.inserted) == 1 else 'are'} inserted"
            + (": the cache is full." if len(step.resident) == capacity else ".")
        )
    return " ".join(told)


def _list(letters: str) -> str:
    return "–".join(letters)


def _asset(name: str) -> str:
    return (ASSETS / name).read_text(encoding="utf-8")
