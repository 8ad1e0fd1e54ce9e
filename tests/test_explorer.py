"""The explorer: its numbers are the results', in the data and on the screen."""

import json
import re
import shlex
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvsim.analysis.worth import memory_multiple
from kvsim.cache.curves import lru_curve
from kvsim.cache.sweep import simulate
from kvsim.cli import main
from kvsim.experiments import explore, regimemap
from kvsim.report import explorer, maps
from kvsim.report.results import load_table
from kvsim.traces.opening import open_trace
from kvsim.traces.trace import TraceError
from tests.strategies import to_trace, traces

LARGEST = 200_000  # bytes

pytestmark = pytest.mark.xdist_group("browser")


@pytest.fixture(scope="module")
def data():
    return explorer.data(explore.committed())


@pytest.fixture(scope="module")
def html(data):
    return explorer.page(data)


# --- data ---------------------------------------------------------------------------------------


def shown(trace, line, seed, size):
    """Return a hit ratio in millionths as the page holds it, None where not measured."""
    row = trace["lines"][line][trace["seeds"].index(seed)]
    place = trace["sizes"].index(size) - len(trace["sizes"]) + len(row)
    return row[place] if place >= 0 else None


def test_every_cell_of_the_comparison_is_there(data):
    cells = load_table("compare", "cells")
    found = [
        shown(data["traces"][row.trace], row.policy, row.seed, row.capacity)
        for row in cells.itertuples()
    ]
    assert (np.array(found, dtype=float) == (1e6 * cells["hit_ratio"]).round()).all()


def test_ttls_and_bounds_are_those_of_the_map_and_of_the_ttl_experiment(data):
    for row in load_table("regimes", "cells").itertuples():
        trace = data["traces"][row.trace]
        line = "lru" if np.isinf(row.ttl_s) else f"lru ttl {row.ttl_s:.0f}"
        assert shown(trace, line, row.seed, row.capacity) == round(1e6 * row.hit_ratio)
        assert shown(trace, "opt", row.seed, row.capacity) == round(1e6 * row.opt_ratio)
    cells = load_table("ttl", "cells").query("sample == 'all sessions'")
    shared = 0
    for row in cells.itertuples():
        trace = data["traces"][row.trace]
        if row.capacity in trace["sizes"]:
            found = shown(trace, f"lru ttl {row.ttl_s:.0f}", row.seed, row.capacity)
            assert found == round(1e6 * row.ttl_hit_ratio)
            shared += 1
    assert shared >= 3 * len(data["traces"])


def test_lru_and_opt_are_those_of_the_bound(data):
    bound = load_table("belady", "bound").groupby("trace").last()
    for name, row in bound.iterrows():
        trace = data["traces"][name]
        for line in ("lru", "opt"):
            found = shown(trace, line, 0, int(row["capacity"]))
            assert found == round(1e6 * row[line] / row["blocks"])


def test_the_verdict_is_the_rule_s_of_the_means_over_seeds(data):
    mean = regimemap.over_seeds(load_table("regimes", "cells"))
    assert len(mean) > 800
    for row in mean.itertuples():
        trace = data["traces"][row.trace]
        ttl = "none" if np.isinf(row.ttl_s) else f"{row.ttl_s:.0f}"
        verdict, *numbers = trace["regimes"][ttl][trace["sizes"].index(row.capacity)]
        assert data["regimes"][verdict] == row.regime
        known = {f"{100 * (row.opt_ratio - row.lru_ratio):.1f}", f"{row.lost_pp:.1f}"}
        known |= {f"{100 * (row.infinite_ratio - row.lru_ratio):.1f}"}
        known |= {f"{100 * abs(row.lru_ratio - row.hit_ratio):.1f}"}
        assert set(numbers) <= known | {f"{100 * row.removed_by_ttl_share:.0f}"}


@pytest.mark.property
@given(requests=traces(), capacity=st.integers(1, 20), at=st.integers(0, 30))
def test_worth_is_where_lru_s_own_curve_reaches_the_hits(requests, capacity, at):
    hits = lru_curve(to_trace(requests))
    if len(hits) < 2:
        return
    capacity = min(capacity, len(hits) - 1)
    reached = hits[min(at, len(hits) - 1)]
    sizes = np.arange(1, len(hits))
    multiple = memory_multiple(sizes, hits[1:], capacity, hits[capacity], reached)
    same = [size for size in sizes if hits[size] == reached]
    if not same:  # fewer than the smallest cache has
        assert np.isnan(multiple)
    elif capacity in same:
        assert multiple == 1
    else:
        assert round(multiple * capacity, 6) == same[0]


def test_opt_is_worth_seven_to_eighteen_times_the_memory_on_conversation(data):
    trace = data["traces"]["conversation"]
    pressed = [worth / 100 for worth in trace["worth"]["opt"][0] if worth][-12:-6]
    assert min(pressed) > 4
    assert max(pressed) < 20


def test_all_is_within_200_kb_and_names_no_other_file(html):
    assert len(html.encode()) <= LARGEST
    assert not re.search(r"""(src|href)=["'](?!data:)""", html)
    assert "The MIT License" in html  # of uPlot


def test_names_from_a_trace_are_text():
    cells = {"trace": "</script><b>", "capacity": [1, 2], "seed": 0, "block_tokens": 4}
    ratios = {"hit_ratio": 0.1, "lru_ratio": 0.1, "opt_ratio": 0.2, "infinite_ratio": 0.5}
    grid = pd.DataFrame(cells | ratios | {"ttl_s": np.inf, "removed_by_ttl_share": 0.0})
    facts = {"trace": ["</script><b>"], "distinct_blocks": 2, "window": "", "opened": "x"}
    tables = {
        "cells": grid.assign(policy="lfu"),
        "regimes": grid,
        "curve": grid,
        "facts": pd.DataFrame(facts),
    }
    assert "</script><b>" not in explorer.page(explorer.data(tables))


def test_curves_are_a_picture_with_their_names():
    table = pd.DataFrame(
        {"policy": ["lru", "lru", "<opt>"], "capacity": [1, 1000, 30], "hit_ratio": [0, 1, 0.5]}
    )
    snippet = explorer.curves(table, "LRU rises.")
    assert 'aria-label="LRU rises."' in snippet
    assert "&lt;opt&gt;</text>" in snippet
    assert "uPlot" not in snippet


# --- the map of regimes -------------------------------------------------------------------------


def test_cells_of_the_map_are_those_of_single_runs():
    trace = open_trace("sample", window=None)
    cells = regimemap.tables(trace, capacities=[4628, 31777], ttls=[300.0, np.inf], seeds=[1])
    opened = open_trace("sample", seed=1)
    for row in cells["cells"].itertuples():
        ttl = None if np.isinf(row.ttl_s) else row.ttl_s
        run = simulate(opened, "lru", row.capacity, ttl=ttl)
        assert row.hit_ratio == round(run.hit_blocks.sum() / opened.blocks, 6)
        removed = (run.expired_blocks or 0) + (run.evicted_blocks or 0)
        assert row.removed_by_ttl_share == round((run.expired_blocks or 0) / (removed or 1), 6)
        best = simulate(opened, "opt", row.capacity).hit_blocks.sum()
        assert row.opt_ratio == round(best / opened.blocks, 6)


def test_the_map_draws_a_panel_a_trace_and_only_the_regimes_there_are():
    table = regimemap.over_seeds(load_table("regimes", "cells"))
    figure = maps.regime_map(table)
    assert [axis.get_title(loc="left") for axis in figure.axes] == list(table["trace"].unique())
    keys = [text.get_text() for text in figure.legends[0].get_texts()]
    assert set(keys) == set(table["regime"])


def test_policies_are_drawn_best_first_with_their_means_over_seeds():
    rows = [("a", 10, 0, -20.0), ("a", 10, 1, -1.0), ("b", 10, 0, 0.01), ("opt", 10, 0, 3.21)]
    table = pd.DataFrame(rows, columns=["policy", "capacity", "seed", "gain_pp"])
    axis = maps.policy_heat_map(table, first=["opt"]).axes[0]
    assert [label.get_text() for label in axis.get_yticklabels()] == ["opt", "b", "a"]
    assert [text.get_text() for text in axis.texts] == ["3.2", "0", "−10"]


# --- in the browser -----------------------------------------------------------------------------


@pytest.fixture
def look(browser, html, tmp_path):
    """Return a function that opens the page at an address; nothing may fail or leave it."""
    file = tmp_path / "explorer.html"
    file.write_text(html)
    trouble: list[str] = []

    def open_page(state="", content=None, **options):
        if content:
            file.write_text(content)
        page = browser.new_page(**options)
        page.on("console", lambda message: trouble.append(message.text))
        page.on("pageerror", lambda error: trouble.append(str(error)))
        page.on("request", lambda request: requests.append(request.url))
        page.goto(f"{file.as_uri()}{state}")
        return page

    requests: list[str] = []
    yield open_page
    assert trouble == []
    assert {url.split("#")[0] for url in requests} - {file.as_uri(), "data:,"} == set()


def read_out(page):
    """Return the table of a page: by line, its cells."""
    rows = page.locator(".kvx tbody tr").all()
    return {row.locator("th").inner_text(): row.locator("td").all_inner_texts() for row in rows}


def minus(text):
    return text.replace("−", "-")


STATES = (
    ("weka", "liveness,lhd,lirs", 25863, "none", "mean"),
    ("weka", "arc,s3-fifo,h", 67773, "300", "3"),
    ("conversation", "liveness,lru-k,lfu", 2393, "60", "mean"),
    ("synthetic", "2q,sieve,gdsf", 3947, "3600", "mean"),
    ("sample", "continuum,liveness,lecar", 12127, "none", "0"),
)


@pytest.mark.parametrize(("trace", "policies", "capacity", "ttl", "seed"), STATES)
def test_numbers_on_the_screen_are_the_results(look, trace, policies, capacity, ttl, seed):
    state = f"#trace={trace}&policies={policies}&capacity={capacity}&ttl={ttl}&seed={seed}"
    found = read_out(look(state))
    cells = load_table("compare", "cells").query("trace == @trace and capacity == @capacity")
    if seed != "mean":
        cells = cells[cells["seed"] == int(seed)]
    names = {"LRU": "lru", "OPT": "opt", **{name: name for name in policies.split(",")}}
    for label, name in names.items():
        own = cells[cells["policy"] == name]
        hits, gain, closed, _ = (minus(text) for text in found[label])
        assert float(hits) == pytest.approx(100 * own["hit_ratio"].mean(), abs=0.0501)
        points, *span = re.findall(r"-?[\d.]+", gain)
        assert float(points) == pytest.approx(own["gain_pp"].mean(), abs=0.0501)
        if name != "lru" and len(own) > 1:
            ends = (own["gain_pp"].min(), own["gain_pp"].max())
            assert [float(end) for end in span] == pytest.approx(ends, abs=0.0501)
        if closed != "–":
            assert float(closed) == pytest.approx(100 * own["headroom_closed"].mean(), abs=0.6)
    if ttl != "none":
        grid = load_table("regimes", "cells").query("trace == @trace and capacity == @capacity")
        grid = grid[grid["ttl_s"] == float(ttl)]
        grid = grid if seed == "mean" else grid[grid["seed"] == int(seed)]
        (label,) = found.keys() - names.keys()
        assert float(found[label][0]) == pytest.approx(100 * grid["hit_ratio"].mean(), abs=0.0501)


def test_the_address_restores_the_state(look):
    page = look()
    page.select_option("#kvx-trace", "sample")
    page.select_option("#kvx-policy-2", "arc")
    page.select_option("#kvx-ttl", "60")
    page.select_option("#kvx-show", "worth")
    page.select_option("#kvx-unit", "gib")
    page.select_option("#kvx-seed", "2")
    page.fill("#kvx-kv", "65536")
    page.press("#kvx-kv", "Enter")
    page.press("#kvx-capacity", "End")
    address = page.evaluate("location.hash")
    again = look(address)
    assert again.evaluate("location.hash") == address
    for part in (".kvx-sentence", ".kvx table", ".kvx pre", ".kvx-slide output"):
        assert again.inner_text(part) == page.inner_text(part)
    controls = "[...document.querySelectorAll('.kvx form :is(select, input)')].map(x => x.value)"
    assert again.evaluate(controls) == page.evaluate(controls)


@pytest.mark.parametrize("state", ["#trace=nothing&capacity=x", "#capacity=1e99", "#a-heading"])
def test_an_address_that_means_nothing_shows_the_beginning(look, state):
    assert read_out(look(state)) == read_out(look())


def test_the_keyboard_moves_the_capacity(look, data):
    page = look("#trace=conversation&policies=lhd,,&capacity=3874")
    sizes = data["traces"]["conversation"]["sizes"]
    page.focus("#kvx-capacity")
    page.keyboard.press("ArrowRight")
    following = sizes[sizes.index(3874) + 1]
    assert f"capacity={following}&" in page.evaluate("location.hash")
    assert f"{following:,} blocks" in page.inner_text(".kvx caption")
    assert page.get_attribute("#kvx-capacity", "aria-valuetext").startswith(f"{following:,} blocks")
    page.keyboard.press("Home")
    assert read_out(page)["lhd"] == ["not measured at this capacity"]


def test_the_sentence_is_python_s(look, data):
    page = look("#trace=weka&policies=,,&capacity=3195527&ttl=60")
    place, share, cost = data["traces"]["weka"]["regimes"]["60"][-1]
    sentence = data["sentences"][place].format(share=share, cost=cost)
    assert page.inner_text(".kvx-sentence") == f"{sentence} (Mean of 5 seeds.)"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_is_wider_than_a_phone(look, scheme):
    options = {"viewport": {"width": 390, "height": 800}, "color_scheme": scheme}
    page = look("#trace=weka&policies=liveness,lhd,length-aware&ttl=3600", **options)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert page.evaluate("document.querySelector('.kvx-scroll').scrollWidth") <= 390
    page.set_viewport_size({"width": 800, "height": 800})
    page.wait_for_function("document.querySelector('.kvx-plot canvas').clientWidth > 700")


def test_without_scripts_there_are_a_picture_and_a_table(look):
    page = look(java_script_enabled=False)
    assert page.locator(".kvx svg").get_attribute("aria-label").startswith("Hit ratio of lru")
    assert page.locator(".kvx tbody tr").count() == 24


def test_curves_come_to_life_once_the_library_is_there(look):
    rows = {"policy": ["lru", "lru", "opt"], "capacity": [10, 1000, 10], "hit_ratio": [0, 0.5, 1]}
    snippet = explorer.curves(pd.DataFrame(rows), "LRU rises.")
    head = '<!doctype html><meta charset="utf-8"><link rel="icon" href="data:,">'
    still = look(content=f"{head}{snippet}")
    assert still.locator("svg").count() == 1
    page = look(content=f"{head}{snippet}{explorer.library()}{snippet}")
    assert page.locator("canvas").count() == 2
    page.locator(".u-over").first.hover(position={"x": 2, "y": 50})
    keys = page.locator(".kvx-keys").first.inner_text()
    assert keys.split("\n") == ["lru 0.0 %", "opt 100.0 %", "at 10 blocks"]


# --- on a trace of one's own --------------------------------------------------------------------


def run_line(line, capsys):
    """Run a command as the page shows it; return its rows by policy."""
    program, *words = shlex.split(line)
    assert program == "kvsim"
    assert main([*words, "--json"]) == 0
    return {row["policy"]: row for row in json.loads(capsys.readouterr().out)}


def test_the_command_on_the_page_gives_the_number_on_the_page(look, capsys):
    page = look("#trace=sample&policies=liveness,arc,&capacity=4628&ttl=300&seed=2")
    runs, limited = page.inner_text(".kvx pre").split("\n")
    found = {
        **{name.upper(): run_line(runs, capsys)[name] for name in ("lru", "opt")},
        **{name: run_line(runs, capsys)[name] for name in ("liveness", "arc")},
        "LRU, TTL 5 min": run_line(limited, capsys)["lru"],
    }
    on_page = {name: float(cells[0]) for name, cells in read_out(page).items()}
    computed = {name: 100 * row["hit_ratio"] for name, row in found.items()}
    assert on_page == pytest.approx(computed, abs=0.0501)


ROWS = [
    {"timestamp": 10 * n, "input_length": 8, "output_length": 1, "hash_ids": [n % 3, 3 + n % 4]}
    for n in range(40)
]


def test_explore_writes_a_page_of_a_trace(tmp_path, look, capsys):
    trace, target = tmp_path / "it's mine.jsonl", tmp_path / "page.html"
    trace.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    options = ["--policy", "lfu,lru", "--block-size", "4", "--format", "mooncake"]
    assert main(["explore", str(trace), "-o", str(target), *options]) == 0
    capsys.readouterr()
    page = look(content=target.read_text())
    page.select_option("#kvx-policy-1", "lfu")
    found = read_out(page)
    runs = run_line(page.inner_text(".kvx pre"), capsys)
    for label, name in (("LRU", "lru"), ("OPT", "opt"), ("lfu", "lfu")):
        assert float(found[label][0]) == pytest.approx(100 * runs[name]["hit_ratio"], abs=0.0501)


def test_explore_needs_no_extra(tmp_path):
    hide = "import sys; sys.modules |= dict.fromkeys(('matplotlib', 'scipy', 'IPython'))"
    target = tmp_path / "page.html"
    run = (
        f"from kvsim.cli import main; sys.exit(main(['explore', 'sample', '-o', {str(target)!r}]))"
    )
    done = subprocess.run([sys.executable, "-c", f"{hide}; {run}"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert target.exists()


def test_explore_says_in_a_line_what_is_wrong(tmp_path, capsys):
    target = tmp_path / "page.html"
    assert main(["explore", "sample", "-o", str(target), "--policy", "nope"]) == 2
    assert main(["explore", "conversatoin", "-o", str(target)]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 2
    assert not target.exists()


def test_a_trace_without_blocks_is_nothing_to_explore():
    with pytest.raises(TraceError, match="nothing to explore"):
        explore.measured(to_trace(()), "empty.jsonl")
