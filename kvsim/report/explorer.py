"""A page to play with: what hits at every capacity, policy and TTL, and what binds there.

All numbers and sentences come from Python; the script of the page selects, averages over seeds,
and draws.
"""

import html
import json
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from string import Formatter
from typing import Any

import numpy as np
import pandas as pd

from kvsim.analysis import regimes
from kvsim.analysis.worth import KV_BYTES, memory_multiple

ASSETS = Path(__file__).parent / "assets"
MILLION = 1_000_000
BOUNDS = ("lru", "opt")
FIRST_POLICIES = ("liveness", "lhd", "lirs")
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#8a6d00", "#56B4E9")
SENTENCES = {
    "compulsory": "Nothing binds but first requests: LRU is {lost} points below an infinite cache, "
    "and neither a policy nor memory can win more than that.",
    "capacity-bound, mild": f"Space binds, but no policy helps much: the optimum is {{headroom}} "
    f"points above LRU (mild: below {100 * regimes.MILD:g}), an infinite cache {{lost}}.",
    "capacity-bound, heavy": "Space binds: the optimum is {headroom} points above LRU at this "
    "size, an infinite cache {lost}.",
    "TTL-bound": "Time binds: the TTL makes {share} % of removals and costs LRU {cost} points of "
    "hit ratio; more memory does not bring them back.",
}


def data(tables: Mapping[str, pd.DataFrame], bytes_per_token: float = KV_BYTES) -> dict[str, Any]:
    """Return what the page holds, ready for JSON; hit ratios in millionths.

    Parameters
    ----------
    tables : dict of DataFrame
        ``cells``: a row a trace, policy, capacity (blocks) and seed, with `hit_ratio`.
        ``regimes``: a row a trace, seed, TTL (`ttl_s`, seconds, infinite: none) and capacity, with
        `hit_ratio` of LRU with the TTL, `lru_ratio`, `opt_ratio`, `infinite_ratio`,
        `removed_by_ttl_share`, `block_tokens`.
        ``curve``: a row a trace, seed and capacity, with `lru_ratio`, the more the better.
        ``facts``: a row a trace: `distinct_blocks`, and, as the command line takes them, `opened`
        (the trace, with options) and `window`, in which sessions start, "" where requests have
        times of their own.
    bytes_per_token : float
        KV bytes of a token, at first; the page lets the reader change them.
    """
    traces = {
        str(row["trace"]): _trace(
            row, {name: table[table["trace"] == row["trace"]] for name, table in tables.items()}
        )
        for row in tables["facts"].to_dict("records")
    }
    return {
        "bytes_per_token": bytes_per_token,
        "regimes": list(SENTENCES),
        "sentences": list(SENTENCES.values()),
        "traces": traces,
    }


def _trace(facts: Mapping[Any, Any], own: Mapping[str, pd.DataFrame]) -> dict[str, Any]:
    grid, cells = own["regimes"], own["cells"]
    sizes = sorted(grid["capacity"].unique().tolist())
    seeds = sorted(grid["seed"].unique().tolist())
    without = grid[np.isinf(grid["ttl_s"])]
    parts = {
        "lru": without.assign(hit_ratio=without["lru_ratio"]),
        "opt": without.assign(hit_ratio=without["opt_ratio"]),
        **{str(name): part for name, part in cells.groupby("policy", sort=False)},
        **{_limited(ttl): part for ttl, part in _with_ttl(grid)},
    }
    lines = {name: _by_seed(part, seeds, sizes) for name, part in parts.items()}
    curves = {
        seed: part.sort_values("capacity")[["capacity", "lru_ratio"]].to_numpy().T
        for seed, part in own["curve"].groupby("seed")
    }
    lru = lines["lru"]
    return {
        "block": int(grid["block_tokens"].iloc[0]),
        "distinct": int(facts["distinct_blocks"]),
        "opened": facts["opened"],
        "window": facts["window"],
        "seeds": seeds,
        "sizes": sizes,
        "ttls": [ttl for ttl, _ in _with_ttl(grid)],
        "policies": [str(name) for name in dict.fromkeys(cells["policy"])],
        "lines": {name: _whole(values * MILLION) for name, values in lines.items()},
        "worth": {
            name: _whole(100 * _worth(values, lru, sizes, [curves[seed] for seed in seeds]))
            for name, values in lines.items()
            if name != "lru"
        },
        "regimes": {str(ttl): _verdicts(part) for ttl, part in _all_ttls(grid)},
    }


def _all_ttls(grid: pd.DataFrame) -> list[tuple[str | int, pd.DataFrame]]:
    groups: Any = grid.groupby("ttl_s")
    return [("none" if np.isinf(ttl) else int(ttl), part) for ttl, part in groups]


def _with_ttl(grid: pd.DataFrame) -> list[tuple[str | int, pd.DataFrame]]:
    return [pair for pair in _all_ttls(grid) if pair[0] != "none"]


def _limited(ttl: str | int) -> str:
    return f"lru ttl {ttl}"


def _by_seed(part: pd.DataFrame, seeds: Sequence[int], sizes: Sequence[int]) -> np.ndarray:
    """Return hit ratios, a row a seed and a column a capacity; NaN: not measured."""
    wide = part.pivot(index="seed", columns="capacity", values="hit_ratio")
    return wide.reindex(index=pd.Index(seeds), columns=pd.Index(sizes)).to_numpy(dtype=float)


def _worth(
    values: np.ndarray, lru: np.ndarray, sizes: Sequence[int], curves: Sequence[np.ndarray]
) -> np.ndarray:
    rows = [
        [
            memory_multiple(known, hits, size, own, value) if value == value else np.nan
            for size, own, value in zip(sizes, lru[row], values[row], strict=True)
        ]
        for row, (known, hits) in enumerate(curves)
    ]
    return np.array(rows)


def _whole(values: np.ndarray) -> list[list[int | None]]:
    """Return rounded rows, from the first column that has a value on; the last are the last."""
    first = int(np.argmax(~np.isnan(values).all(axis=0)))
    rows = values[:, first:].tolist()
    return [[None if np.isnan(value) else round(value) for value in row] for row in rows]


def _verdicts(part: pd.DataFrame) -> list[list[Any]]:
    """Return, for each capacity, the regime of the means over seeds and its sentence's numbers."""
    mean = part.drop(columns=["trace", "regime"], errors="ignore").groupby("capacity").mean()
    names = list(SENTENCES)
    verdicts = []
    for row in mean.to_dict("records"):
        lru, opt, infinite = row["lru_ratio"], row["opt_ratio"], row["infinite_ratio"]
        share = row["removed_by_ttl_share"]
        numbers = {
            "lost": _points(infinite - lru),
            "headroom": _points(opt - lru),
            "cost": _points(lru - row["hit_ratio"]),
            "share": f"{100 * share:.0f}",
        }
        name = regimes.regime(lru, opt, infinite, share)
        wanted = [key for _, key, *_ in Formatter().parse(SENTENCES[name]) if key]
        verdicts.append([names.index(name), *(numbers[key] for key in wanted)])
    return verdicts


def _points(share: float) -> str:
    return f"{abs(100 * share):.1f}"


def page(content: Mapping[str, Any], title: str = "What would your cache hit?") -> str:
    """Return the explorer as a page of its own, which asks no other file for anything."""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<title>{html.escape(title)}</title>\n<link rel="icon" href="data:,">\n'
        f"<style>{_asset('page.css')}</style>\n</head>\n<body>\n<main>\n"
        f"<h1>{html.escape(title)}</h1>\n{embed(content)}\n</main>\n</body>\n</html>\n"
    )


def embed(content: Mapping[str, Any]) -> str:
    """Return the explorer as a piece of a page, with all that it needs.

    Without scripts it is a table and a picture of the first trace.
    """
    packed = json.dumps(content, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
    return "\n".join(
        [
            library(),
            f'<div class="kvx" id="kvx">{_fall_back(content)}</div>',
            f'<script type="application/json" id="kvx-data">{packed}</script>',
            f"<script>{_asset('explorer.js')}</script>",
        ]
    )


def library() -> str:
    """Return the scripts and styles of all plots here, wanted once on a page that has some."""
    return (
        f"<style>{_asset('uplot.min.css')}{_asset('plot.css')}</style>\n"
        f"<script>/*\n{_asset('uplot.LICENSE')}*/\n{_asset('uplot.min.js')}</script>\n"
        f"<script>{_asset('plot.js')}</script>"
    )


def curves(
    table: pd.DataFrame, label: str, series: str = "policy", value: str = "hit_ratio"
) -> str:
    """Return hit-ratio curves over capacity: a picture, which `library` brings to life.

    Parameters
    ----------
    table : DataFrame
        Columns `capacity` (blocks, at least 1), `value` (a share of 1) and `series`.
    label : str
        A sentence that says what is to be seen, for those who do not see it.
    """
    lines = {
        str(name): part.sort_values("capacity")[["capacity", value]].to_numpy().tolist()
        for name, part in table.groupby(series, sort=False)
    }
    packed = json.dumps(lines, separators=(",", ":"), allow_nan=False)
    return (
        f'<figure class="kvx-curves" data-lines="{html.escape(packed)}" '
        f'data-label="{html.escape(label)}">{picture(lines, label)}</figure>'
    )


def picture(lines: Mapping[str, Sequence[Sequence[float]]], label: str) -> str:
    """Return hit ratio over capacity (log) as SVG, with a name at the end of every line.

    Parameters
    ----------
    lines : dict
        By name, pairs of a capacity (blocks) and a hit ratio (a share of 1).
    label : str
        The alternative text.
    """
    width, height, left, right, top, bottom = 480, 320, 50, 78, 14, 46
    sizes = [size for line in lines.values() for size, _ in line]
    low, high = np.log10(min(sizes)), np.log10(max(sizes)) + 1e-9
    span = max(high - low, 1e-9)

    def place(size: float, ratio: float) -> tuple[float, float]:
        across = left + (width - left - right) * (np.log10(size) - low) / span
        return round(across, 1), round(height - bottom - (height - top - bottom) * ratio, 1)

    text = 'font-size="14" fill="currentColor"'
    parts = [
        f'<path d="M{left} {y}H{width - right}" stroke="currentColor" stroke-opacity=".2"/>'
        f'<text x="{left - 6}" y="{y + 4}" text-anchor="end" {text}>{100 * share:.0f} %</text>'
        for share in (0, 0.25, 0.5, 0.75, 1)
        for y in [place(min(sizes), share)[1]]
    ]
    parts += [
        f'<text x="{place(10.0**power, 0)[0]}" y="{height - bottom + 18}" text-anchor="middle" '
        f"{text}>{_power(power)}</text>"
        for power in range(int(np.ceil(low)), int(np.floor(high)) + 1)
    ]
    middle = (left + width - right) / 2
    parts.append(
        f'<text x="{middle}" y="{height - 6}" text-anchor="middle" {text}>capacity (blocks)</text>'
    )
    ends = _apart({name: place(*line[-1])[1] for name, line in lines.items()})
    for number, (name, line) in enumerate(lines.items()):
        color = COLORS[number % len(COLORS)]
        path = " ".join(f"{x},{y}" for x, y in (place(*point) for point in line))
        parts.append(
            f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="2"/>'
            f'<text x="{width - right + 6}" y="{ends[name] + 4:.0f}" font-size="14" '
            f'fill="{color}">{html.escape(name)}</text>'
        )
    return (
        f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{html.escape(label)}" '
        f'style="max-width:{width}px;width:100%">{"".join(parts)}</svg>'
    )


def _apart(ends: Mapping[str, float], gap: float = 15) -> dict[str, float]:
    """Move heights apart, downwards, so that names beside each other can be read."""
    order = sorted(ends, key=lambda name: ends[name])
    moved = dict(ends)
    for above, below in pairwise(order):
        moved[below] = max(moved[below], moved[above] + gap)
    return moved


def _power(power: int) -> str:
    return {0: "1", 1: "10", 2: "100", 3: "1k", 4: "10k", 5: "100k"}.get(
        power, f"{10 ** (power - 6)}M"
    )


def _fall_back(content: Mapping[str, Any]) -> str:
    name, trace = next(iter(content["traces"].items()))
    sizes = trace["sizes"]
    chosen = [*BOUNDS, *(p for p in FIRST_POLICIES if p in trace["policies"])]
    means = {line: _mean(trace["lines"][line], len(sizes)) for line in chosen}
    lines = {
        line: [
            (size, value / MILLION)
            for size, value in zip(sizes, values, strict=True)
            if value is not None
        ]
        for line, values in means.items()
    }
    heads = "".join(f"<th>{html.escape(line)}</th>" for line in chosen)
    rows = "".join(
        f"<tr><th>{size:,}</th>"
        + "".join(f"<td>{_percent(means[line][place])}</td>" for line in chosen)
        + "</tr>"
        for place, size in enumerate(sizes)
    )
    label = f"Hit ratio of {', '.join(chosen)} by capacity on {name}."
    return (
        f"{picture(lines, label)}<div class='kvx-scroll' tabindex='0'><table>"
        f"<caption>Hit ratio (%) by capacity on {html.escape(name)}, mean over seeds (–: not "
        f"measured). With scripts, every trace, policy and TTL can be chosen here.</caption>"
        f"<thead><tr><th>blocks</th>{heads}</tr></thead><tbody>{rows}</tbody></table></div>"
    )


def _mean(by_seed: Sequence[Sequence[int | None]], sizes: int) -> list[float | None]:
    absent: list[float | None] = [None] * (sizes - len(by_seed[0]))
    columns = [
        [value for value in column if value is not None] for column in zip(*by_seed, strict=True)
    ]
    return [*absent, *(sum(column) / len(column) if column else None for column in columns)]


def _percent(millionths: float | None) -> str:
    return "–" if millionths is None else f"{millionths / 10_000:.1f}"


def _asset(name: str) -> str:
    return (ASSETS / name).read_text(encoding="utf-8")
