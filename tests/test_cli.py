"""The commands as a user types them: output forms, options, errors, exit codes."""

import csv
import io
import json
import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet
from rich.cells import cell_len
from rich.console import Console

import kvsim
from kvsim.cli import main, runs
from kvsim.report import terminal
from kvsim.report.terminal import Meter, Sheet
from kvsim.traces.readers import read
from kvsim.traces.trace import Trace

INFO_FIELDS = {
    "requests",
    "sessions",
    "blocks",
    "distinct_blocks",
    "infinite_hit_blocks",
    "input_tokens",
    "infinite_hit_tokens",
    "unblocked_tokens",
    "block_size",
}
HEADINGS = [heading.replace("\n", " ") for heading in runs.RUN_COLUMNS.values()]
CHAINS = [(0, 1024, [1, 2]), (10_000, 1024, [1, 3]), (20_000, 1100, [1, 2, 4])]


class Outcome(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        assert self.code == 0, self.err
        return json.loads(self.out)


Run = Callable[..., Outcome]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Return a function that runs the command line in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KVSIM_DATA", str(tmp_path / "data"))

    def call(*arguments: str) -> Outcome:
        code = main(list(arguments))
        return Outcome(code, *capsys.readouterr())

    return call


@pytest.fixture
def chat(tmp_path: Path) -> str:
    """Return a Mooncake trace of three requests, 7 block accesses, 4 blocks."""
    rows = [
        {"timestamp": time, "input_length": tokens, "output_length": 1, "hash_ids": ids}
        for time, tokens, ids in CHAINS
    ]
    (tmp_path / "chat.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return "chat.jsonl"


@pytest.fixture
def agents(tmp_path: Path) -> str:
    """Return a folder of three one-request agent sessions."""
    for number in range(3):
        request = {"t": 0, "type": "n", "in": 130, "out": 5, "hash_ids": [1, 2 + number]}
        session = {"id": str(number), "block_size": 64, "hash_id_scope": "local"}
        path = tmp_path / f"agents/trace_{number}.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(session | {"requests": [request]}))
    return "agents"


def error_of(outcome: Outcome) -> str:
    """Return the one line that a failed command ends with."""
    assert outcome.code == 2
    assert outcome.out == ""
    lines = outcome.err.splitlines()
    assert len(lines) == 1, outcome.err
    assert lines[0].startswith("error: ")
    return lines[0]


# --- info ----------------------------------------------------------------------------------------


def test_info_json(run: Run, chat: str) -> None:
    facts = run("info", chat, "--json").json
    assert facts == {
        "requests": 3,
        "sessions": None,
        "blocks": 7,
        "distinct_blocks": 4,
        "infinite_hit_blocks": 3,
        "input_tokens": 3_148,
        "infinite_hit_tokens": 1_536,
        "unblocked_tokens": 0,
        "block_size": 512,
    }


def test_info_of_sessions(run: Run, agents: str) -> None:
    facts = run("info", agents, "--json").json
    assert set(facts) == INFO_FIELDS
    assert (facts["sessions"], facts["blocks"], facts["infinite_hit_blocks"]) == (3, 6, 0)
    assert facts["unblocked_tokens"] == 6


def test_info_table_and_csv(run: Run, chat: str) -> None:
    table = run("info", chat)
    assert "3,148" in table.out
    assert "distinct blocks" in table.out
    rows = list(csv.DictReader(io.StringIO(run("info", chat, "--csv").out)))
    assert rows[0]["input_tokens"] == "3148"
    assert rows[0]["sessions"] == ""


# --- simulate ------------------------------------------------------------------------------------


def test_simulate_json(run: Run, chat: str) -> None:
    runs = run("simulate", chat, "--policy", "lru,opt", "--capacity", "2,inf", "--json").json
    assert [(r["policy"], r["capacity"], r["hit_blocks"]) for r in runs] == [
        ("lru", 2, 2),
        ("lru", 4, 3),
        ("opt", 2, 3),
        ("opt", 4, 3),
    ]
    assert runs[0] == {
        "policy": "lru",
        "capacity": 2,
        "requests": 3,
        "blocks": 7,
        "hit_blocks": 2,
        "hit_ratio": pytest.approx(2 / 7),
        "tokens": 3_148,
        "hit_tokens": 1_024,
        "compulsory_blocks": 4,
        "recompute_blocks": 1,
        "capped_blocks": 0,
        "inserted_blocks": 4,
        "evicted_blocks": 2,
        "expired_blocks": 0,
    }
    assert [runs[2][f"{flow}_blocks"] for flow in ("inserted", "evicted", "expired")] == [None] * 3


def test_lists_by_comma_and_by_repetition(run: Run, chat: str) -> None:
    once = run("simulate", chat, "--policy", "fifo, lru", "--capacity", "1,50%", "--json")
    twice = run(
        *("simulate", chat, "--policy", "fifo", "--policy", "lru"),
        *("--capacity", "1", "--capacity", "50%", "--json"),
    )
    assert once == twice
    assert [(r["policy"], r["capacity"]) for r in once.json] == [
        ("fifo", 1),
        ("fifo", 2),
        ("lru", 1),
        ("lru", 2),
    ]


def test_grid_keeps_the_order_asked_for(run: Run, chat: str) -> None:
    rows = run(
        *("simulate", chat, "--policy", "opt,sieve,lru,sieve", "--capacity", "3,inf,1,3", "--json")
    ).json
    assert [r["capacity"] for r in rows] == [3, 4, 1, 3] * (len(rows) // 4)
    assert [r["policy"] for r in rows[::4]] == ["opt", "sieve", "lru"]
    for row in rows:
        alone = ("simulate", chat, "--policy", row["policy"], "--capacity", str(row["capacity"]))
        assert run(*alone, "--json").json == [row]


def test_ttl_expires_and_names_the_row(run: Run, chat: str) -> None:
    command = (
        "simulate",
        chat,
        "--policy",
        "lru,fifo,opt",
        "--capacity",
        "inf",
        "--ttl",
        "15000ms",
    )
    lru = run(*command, "--json").json[0]
    assert (lru["policy"], lru["hit_blocks"], lru["expired_blocks"]) == ("lru", 2, 1)
    table = run(*command[:-1], "5m").out
    assert [line.split()[1] for line in table.splitlines() if line.startswith("│")] == [
        "TTL-300",
        "fifo+TTL-300",
        "opt",
    ]


@pytest.mark.parametrize(
    ("options", "hits"),
    [
        (("--eviction", "flat"), 2),
        (("--eviction", "flat", "--touch-order", "root-oldest"), 2),
        (("--no-pin",), 2),
        (("--hits", "set", "--no-pin", "--eviction", "flat"), 2),
        (("--hit-cap", "engine"), 2),
    ],
)
def test_switches_are_taken(run: Run, chat: str, options: tuple[str, ...], hits: int) -> None:
    runs = run("simulate", chat, "--capacity", "2", "--json", *options).json
    assert [r["hit_blocks"] for r in runs] == [hits]


def test_capacity_as_memory(run: Run, chat: str) -> None:
    runs = run(
        *("simulate", chat, "--capacity", "2.5MiB,inf", "--bytes-per-token", "2048", "--json")
    ).json
    assert [r["capacity"] for r in runs] == [2, 4]


def test_csv_has_the_fields_of_the_json(run: Run, chat: str) -> None:
    text = run("simulate", chat, "--policy", "lru,opt", "--capacity", "2", "--csv").out
    rows = list(csv.DictReader(io.StringIO(text)))
    assert tuple(rows[0]) == runs.RUN_FIELDS
    assert [row["inserted_blocks"] for row in rows] == ["4", ""]


def test_standard_input_is_passed_on(run: Run, chat: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def from_a_pipe(name: str, *, progress: Callable[[int, int], None], **_: object) -> Trace:
        asked.append(name)
        progress(10, 0)
        return read(chat)

    monkeypatch.setattr("kvsim.traces.opening.open_trace", from_a_pipe)
    assert run("info", "-", "--json").json["requests"] == 3
    assert asked == ["-"]


def test_table_says_what_opt_bounds(run: Run, chat: str) -> None:
    assert (
        "bounds neither tokens" in run("simulate", chat, "--policy", "opt", "--capacity", "2").out
    )
    assert "bounds" not in run("simulate", chat, "--capacity", "2").out


def test_empty_trace_has_no_ratio(run: Run, tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").write_text("")
    assert run("simulate", "empty.jsonl", "--capacity", "5", "--json").json[0]["hit_ratio"] is None
    assert "no data" in run("simulate", "empty.jsonl", "--capacity", "5").out
    assert run("curve", "empty.jsonl", "--json").json == [
        {"capacity": 0, "hit_blocks": 0, "hit_ratio": None}
    ]


def test_table_says_that_bounds_take_no_ttl(run: Run, chat: str) -> None:
    command = ("simulate", chat, "--policy", "lru,infinite", "--capacity", "2")
    assert runs.TTL_REMARK in run(*command, "--ttl", "1m").out
    assert "--ttl" not in run(*command).out


def test_arrivals_of_sessions(run: Run, agents: str) -> None:
    command = ("simulate", agents, "--capacity", "3", "--json")
    spread = run(*command)
    assert "drawn uniformly in 28800 s, seed 0" in spread.err
    assert run(*command, "--window", "8h", "--seed", "0").json == spread.json
    assert run(*command, "--window", "0", "--sessions", "2", "--seed", "7").json[0]["requests"] == 2


POLICY_OF_A_USER = """
from kvsim.cache.policy import Policy

def rank(state, cache, node, now):
    return float(cache.nodes[node].uses)

POLICY = Policy(name="own", summary="", source="", rank=rank)
"""


def test_policy_from_a_file_compiles_in_every_process(chat: str, tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(POLICY_OF_A_USER)
    command = [sys.executable, "-m", "kvsim", "simulate", str(tmp_path / chat)]
    command += ["--capacity", "2", "--policy", str(tmp_path / "own.py")]
    for _ in range(2):  # what the first leaves on the disk must not break the second
        subprocess.run(command, check=True, capture_output=True)


def test_policy_from_a_file(run: Run, chat: str, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from dataclasses import replace\n"
        "from kvsim.cache.policies import get\n"
        'POLICY = replace(get("lru"), name="mine")\n'
    )
    runs = run("simulate", chat, "--policy", "./mine.py,lru", "--capacity", "2", "--json").json
    assert [r.pop("policy") for r in runs] == ["mine", "lru"]
    assert runs[0] == runs[1]


# --- curve ---------------------------------------------------------------------------------------


def test_curve_at_given_capacities(run: Run, chat: str) -> None:
    points = run("curve", chat, "--capacity", "0,1,2,3,9,inf", "--json").json
    assert [(p["capacity"], p["hit_blocks"]) for p in points] == [
        (0, 0),
        (1, 2),
        (2, 2),
        (3, 3),
        (9, 3),
        (4, 3),
    ]
    assert points[1]["hit_ratio"] == pytest.approx(2 / 7)


def test_curve_every_step(run: Run, chat: str) -> None:
    points = run("curve", chat, "--all", "--json").json
    assert [(p["capacity"], p["hit_blocks"]) for p in points] == [(0, 0), (1, 2), (3, 3)]


def test_curve_with_a_ttl(run: Run, chat: str) -> None:
    points = run("curve", chat, "--capacity", "inf", "--ttl", "15", "--json").json
    assert [p["hit_blocks"] for p in points] == [2]
    assert "TTL-15" in run("curve", chat, "--ttl", "15").out


def test_curve_default_is_log_spaced_up_to_saturation(run: Run, tmp_path: Path) -> None:
    with (tmp_path / "long.jsonl").open("w") as file:
        for time in range(400):
            ids = [0, time % 150 + 1, 1000 + time]
            row = {"timestamp": time, "input_length": 1536, "output_length": 1, "hash_ids": ids}
            file.write(json.dumps(row) + "\n")
    points = run("curve", "long.jsonl", "--json").json
    capacities = [p["capacity"] for p in points]
    assert capacities == sorted(set(capacities))
    assert 64 <= len(capacities) <= 65
    assert capacities[0] == 1
    first = next(p["capacity"] for p in points if p["hit_blocks"] == points[-1]["hit_blocks"])
    steps = run("curve", "long.jsonl", "--all", "--json").json
    assert steps[-1]["capacity"] == first


# --- convert, policies, fetch --------------------------------------------------------------------


def test_convert_then_open(run: Run, chat: str, tmp_path: Path) -> None:
    assert run("convert", chat, "saved.npz") == (0, "", "")
    assert run("info", "saved.npz", "--json").json == run("info", chat, "--json").json
    assert "saved trace ends in .npz" in error_of(run("convert", chat, "saved.json"))


def test_policies_lists_all(run: Run) -> None:
    from kvsim.cache.bounds import BOUNDS
    from kvsim.cache.policies import POLICIES

    catalogue = run("policies", "--json").json
    assert [row["name"] for row in catalogue] == [*POLICIES, *BOUNDS]
    assert all(set(row) == {"name", "source", "needs"} for row in catalogue)
    assert all(row["source"] for row in catalogue)
    table = run("policies").out
    assert all(name in table for name in POLICIES)


def test_fetch_from_a_mirror_and_convert(run: Run, chat: str, tmp_path: Path) -> None:
    import hashlib

    digest = hashlib.sha256(Path(chat).read_bytes()).hexdigest()
    (tmp_path / "data").mkdir()
    (tmp_path / "data/registry.toml").write_text(
        f'[[trace]]\nname = "t"\nset = "s"\npath = "{chat}"\nurl = "https://example.org/o/r/t"\n'
        f'licence = "CC0"\nsha256 = "{digest}"\n'
    )
    assert "no" in run("fetch", "--list").out
    outcome = run("fetch", "--from", ".")
    assert (outcome.code, outcome.out) == (0, "")
    assert outcome.err == "t: copied from ., verified [CC0, github.com/o/r]\n"
    listed = {"name": "t", "set": "s", "here": "yes", "licence": "CC0", "source": "github.com/o/r"}
    assert run("fetch", "--list", "--json").json == [listed]
    assert len(list((tmp_path / "data/raw/converted").iterdir())) == 1
    assert run("info", "t", "--json").json["requests"] == 3


# --- output --------------------------------------------------------------------------------------


RUNS = ("simulate", "chat.jsonl", "--policy", "lru,opt", "--capacity", "2,inf")


@pytest.mark.parametrize("command", [("info", "chat.jsonl"), RUNS, ("policies",)])
def test_output_takes_the_form_of_its_suffix(
    run: Run, chat: str, tmp_path: Path, command: tuple[str, ...]
) -> None:
    for suffix in ("json", "csv"):
        shown = run(*command, f"--{suffix}").out
        assert run(*command, "-o", f"deep/out.{suffix}") == (0, "", "")
        assert (tmp_path / f"deep/out.{suffix}").read_text() == shown
    assert run(*command, "-o", "deep/out.parquet") == (0, "", "")
    data = run(*command, "--json").json
    stored = parquet.read_table(tmp_path / "deep/out.parquet").to_pylist()
    assert stored == (data if isinstance(data, list) else [data])
    assert sorted(os.listdir(tmp_path / "deep")) == ["out.csv", "out.json", "out.parquet"]


def test_output_as_markdown(run: Run, chat: str, tmp_path: Path) -> None:
    assert run(*RUNS, "-o", "runs.md") == (0, "", "")
    lines = (tmp_path / "runs.md").read_text().splitlines()
    assert lines[:3] == ["**chat**", "", f"| {' | '.join(HEADINGS)} |"]
    assert lines[3] == "| --- |" + " --: |" * 8
    assert lines[4] == "| lru | 2 | 28.57% | 2 | 1,024 | 1 | 4 | 2 | 0 |"
    assert len(lines) == 10
    assert lines[-1] == runs.OPT_REMARK


def test_parquet_without_pyarrow(
    run: Run, chat: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert error_of(run(*RUNS, "-o", "x.parquet")) == (
        "error: x.parquet: needs pyarrow; install it with: pip install 'kvsim[parquet]'"
    )


@pytest.mark.parametrize("command", [RUNS, ("curve", "chat.jsonl", "--ttl", "1m")])
def test_plot_has_labels_and_a_line_a_policy(
    run: Run, chat: str, tmp_path: Path, command: tuple[str, ...]
) -> None:
    assert run(*command, "--plot", "plots/p.png") == run(*command)
    assert (tmp_path / "plots/p.png").read_bytes().startswith(b"\x89PNG")
    assert run(*command, "--plot", "p.svg").code == 0
    svg = (tmp_path / "p.svg").read_text()
    labels = re.findall(r">([^<>]+)</t(?:ext|span)>", svg)
    wanted = {"capacity (blocks)", "hit ratio (% of blocks)", "chat"}
    assert wanted | ({"LRU", "OPT"} if command == RUNS else {"TTL-60"}) <= set(labels)


def test_plot_needs_matplotlib_and_something_to_draw(
    run: Run, chat: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcome = run("curve", chat, "--capacity", "0", "--plot", "p.png")
    assert outcome.code == 2
    assert "p.png: nothing to draw" in outcome.err
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert error_of(run(*RUNS, "--plot", "p.png")).endswith("pip install 'kvsim[plot]'")


def test_tables_off_a_terminal_are_plain_and_whole(run: Run, chat: str) -> None:
    table = run("simulate", chat, "--policy", "lru,opt", "--capacity", "2").out
    assert "\x1b" not in table
    assert "…" not in table
    assert "Left out" not in table
    assert "expired" in table


# Runs `commands` once for each width of this terminal, as its user would after resizing it.
ON_A_TERMINAL = """
import fcntl, json, struct, sys, termios
from kvsim.cli import main

for width in json.loads(sys.argv[1]):
    fcntl.ioctl(1, termios.TIOCSWINSZ, struct.pack("HHHH", 40, width, 0, 0))
    for command in json.loads(sys.argv[2]):
        print(f"## {width} {command[0]}", flush=True)
        assert main(command) == 0, command
"""


def on_terminals(widths: tuple[int, ...], commands: list[list[str]]) -> dict[tuple[int, str], str]:
    """Return what commands show on terminals, by width and name of the command."""
    ours, theirs = pty.openpty()
    program = [sys.executable, "-c", ON_A_TERMINAL, json.dumps(widths), json.dumps(commands)]
    process = subprocess.Popen(
        program,
        stdin=theirs,
        stdout=theirs,
        stderr=subprocess.PIPE,
        env={k: v for k, v in os.environ.items() if k not in {"COLUMNS", "LINES"}},
    )
    os.close(theirs)
    shown = b""
    with suppress(OSError):  # how Linux says that a terminal is closed
        while chunk := os.read(ours, 1 << 16):
            shown += chunk
    os.close(ours)
    text = re.sub(r"\x1b\[[0-9;]*m|\r", "", shown.decode())
    assert process.stderr is not None
    complaints = process.stderr.read()
    assert process.wait() == 0, complaints
    parts = re.split(r"^## (\d+) (\w+)\n", text, flags=re.M)[1:]
    return {(int(w), name): out for w, name, out in zip(*[iter(parts)] * 3, strict=True)}


def test_names_and_numbers_are_whole_on_terminals_of_any_width(tmp_path: Path) -> None:
    from kvsim.cache.bounds import BOUNDS
    from kvsim.cache.policies import POLICIES
    from kvsim.traces.registry import registry

    with (tmp_path / "large.jsonl").open("w") as file:
        for time in range(3000):
            row = {"timestamp": time, "input_length": 3 * 10**6, "output_length": 1}
            file.write(json.dumps(row | {"hash_ids": [0, time % 7 + 1, time + 10]}) + "\n")
    large, names = str(tmp_path / "large.jsonl"), ["hyperbolic", "length-aware", "opt"]
    sized = ["--block-size", "1000000", "--capacity", "12345,9876543210"]
    shown = on_terminals(
        (60, 80, 100, 120),
        [
            ["simulate", large, "--policy", ",".join(names), "--ttl", "90m", *sized],
            ["curve", large, *sized],
            ["info", large, "--block-size", "1000000"],
            ["policies"],
            ["fetch", "--list"],
        ],
    )
    columns = [shown[width, "simulate"].splitlines()[1].count("┳") for width in (60, 80, 100, 120)]
    assert columns == sorted(set(columns))
    for (width, command), out in shown.items():
        assert "…" not in out
        assert max(map(cell_len, out.splitlines())) <= width, out
        if command == "simulate":
            sizes = "(?:12,345|9,876,543,210)"
            for name in ("hyperbolic+TTL-5400", "length-aware+TTL-5400", "opt"):
                assert len(re.findall(rf"│ {re.escape(name)} *│ +{sizes} │", out)) == 2
            assert re.search(rf"^Left out at {width} columns: [^.]*expired\sblocks\.", out, re.M)
        if command == "curve":
            assert "9,876,543,210" in out
        if command == "info":
            assert "9,000,000,000" in out
        if command == "policies":
            assert all(f"│ {name} " in out for name in (*POLICIES, *BOUNDS))
            assert "Mattson" in out
        if command == "fetch":
            assert all(f"│ {name} " in out for name in registry())


@given(
    rows=st.lists(
        st.fixed_dictionaries(
            {
                "policy": st.text("abc[]-é界", min_size=1, max_size=20),
                "capacity": st.integers(10**4, 10**10),
                "hit_ratio": st.floats(0, 1) | st.none(),
                "blocks": st.integers(10**4, 10**10),
                "needs": st.text("ab ", max_size=60),
            }
        ),
        min_size=1,
        max_size=4,
    ),
    width=st.integers(20, 140),
)
@settings(max_examples=100)
def test_sheet_is_cut_by_whole_columns_only(rows: list[dict[str, Any]], width: int) -> None:
    fields = ("policy", "capacity", "hit_ratio", "blocks", "needs")
    headings = {field: field.upper() for field in fields}
    sheet = Sheet("t", rows, headings, keys=3, wrapping=frozenset({"needs"}))
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("COLUMNS", str(width))
        patched.setenv("FORCE_COLOR", "1")
        out = re.sub(r"\x1b\[[0-9;]*m", "", terminal.as_text(sheet))
    for row in rows:
        assert f"│ {row['policy']} " in out
        assert f" {row['capacity']:,} │" in out
        assert "BLOCKS" in out.split("Left out")[-1] or f" {row['blocks']:,} │" in out
    assert "…" not in out
    table = [line for line in out.splitlines() if line.startswith("│")]
    assert len({cell_len(line) for line in table}) == 1
    assert cell_len(table[0]) <= width or "NEEDS" in out.partition("Left out")[2]


@pytest.mark.parametrize(
    ("on_terminal", "patience", "shown"), [(True, 0.0, True), (True, 60, False), (False, 0, False)]
)
def test_progress_after_a_while_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, on_terminal: bool, patience: float, shown: bool
) -> None:
    monkeypatch.setattr(terminal, "PATIENCE", patience)
    screen = io.StringIO()
    with Meter(Console(file=screen, force_terminal=on_terminal)) as meter:
        meter("reading", 1, 10)
        meter.task("reading")(6, 10)
        meter.task("standard input")(1_234, 0)
        if shown:
            meter._patience.join(10)
    assert ("60%" in screen.getvalue()) == shown
    assert ("1,234" in screen.getvalue()) == shown
    assert on_terminal or screen.getvalue() == ""


# --- errors --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("info", "sampel"), "sampel: no such file and no known trace; did you mean 'sample'?"),
        (("info", "nowhere/x.jsonl"), "known: sample, conversation"),
        (("info", "weka"), "kvsim fetch weka"),
        (("info",), "Missing argument 'TRACE'"),
        (("info", "chat.jsonl", "--jsn"), "No such option: --jsn"),
        (("info", "chat.jsonl", "--json", "--csv"), "--json and --csv exclude each other"),
        (("info", "chat.jsonl", "--format", "mooncak"), "known: mooncake, weka"),
        (("info", "chat.jsonl", "--block-size", "0"), "--block-size"),
        (("info", "agents", "--rows", "cumulative"), "rows does not apply to the format weka"),
        (("info", "chat.jsonl", "--nested", "absolute"), "nested does not apply to"),
        (("info", "chat.jsonl", "--rows", "some"), "'some' is not one of"),
        (("infos", "chat.jsonl"), "No such command 'infos'"),
        (("simulate", "chat.jsonl"), "Missing option '--capacity'"),
        (("simulate", "chat.jsonl", "--capacity", "ten"), "capacity 'ten': not a capacity; give"),
        (("simulate", "chat.jsonl", "--capacity", "1,,2"), "--capacity '1,,2': an empty item"),
        (("simulate", "chat.jsonl", "--capacity", "1MiB"), "needs --bytes-per-token"),
        (("simulate", "chat.jsonl", "--capacity", "1", "--policy", "lrv"), "known: lru, fifo"),
        (("simulate", "chat.jsonl", "--capacity", "1", "--policy", "no.py"), "no such file"),
        (("simulate", "chat.jsonl", "--capacity", "1", "--policy", "empty.py"), "define POLICY"),
        (("simulate", "chat.jsonl", "--capacity", "1", "--policy", "bad.py"), "SyntaxError"),
        (
            ("simulate", "chat.jsonl", "--capacity", "1", "--policy", "odd.py"),
            "rank does not compile",
        ),
        (("simulate", "chat.jsonl", "--capacity", "1", "--ttl", "soon"), "duration 'soon'"),
        (("simulate", "chat.jsonl", "--capacity", "1", "--eviction", "all"), "'leaf', 'flat'"),
        (("simulate", "chat.jsonl", "--capacity", "1", "--window", "8h"), "are recorded"),
        (("simulate", "chat.jsonl", "--capacity", "1", "--sessions", "4"), "chat has 0"),
        (("simulate", "agents", "--capacity", "1", "--sessions", "4"), "agents has 3"),
        (("simulate", "agents", "--capacity", "1", "--window", "inf"), "finite time"),
        (("simulate", "agents", "--capacity", "1", "--seed", "-1"), "--seed"),
        (("curve", "chat.jsonl", "--all", "--capacity", "1"), "exclude each other"),
        (("fetch", "mooncakes"), "did you mean 'mooncake'?"),
        (("fetch", "--from", "nowhere"), "nowhere: no such folder"),
        (("info", "chat.jsonl", "--output", "chat.jsonl/x.csv"), "chat.jsonl"),
        (("info", "chat.jsonl", "-o", "x"), "x: the suffix says the form; it may be .csv, .json,"),
        (("info", "no.jsonl", "-o", "x.txt"), "it may be .csv, .json, .parquet, .md"),
        (("info", "chat.jsonl", "-o", "folder.csv"), "folder.csv: is a folder"),
        (("info", "chat.jsonl", "-o", "x.csv", "--json"), "--json and -o exclude each other"),
        (("curve", "chat.jsonl", "-o", "x.csv", "--csv"), "--csv and -o exclude each other"),
        (("curve", "no.jsonl", "--plot", "x.pdf"), "x.pdf: the suffix says the form; it may be"),
        (("simulate", "no.jsonl", "--capacity", "1", "--plot", "x"), "it may be .png, .svg"),
        (
            ("simulate", "chat.jsonl", "--capacity", "1", "--policy", "own.py,other.py"),
            "policy 'own' is the name of two",
        ),
        (("fetch", "--json"), "go with --list"),
    ],
    ids=lambda value: "_".join(value) if isinstance(value, tuple) else None,
)
def test_error_is_one_line_and_exit_2(
    run: Run, chat: str, agents: str, tmp_path: Path, arguments: tuple[str, ...], says: str
) -> None:
    (tmp_path / "folder.csv").mkdir()
    (tmp_path / "own.py").write_text(POLICY_OF_A_USER)
    (tmp_path / "other.py").write_text(POLICY_OF_A_USER.replace("uses", "depth"))
    (tmp_path / "empty.py").write_text("")
    (tmp_path / "bad.py").write_text("def")
    (tmp_path / "odd.py").write_text(POLICY_OF_A_USER.replace("uses", "lasts"))
    assert says in error_of(run(*arguments))


def test_damaged_trace_names_file_and_line(run: Run, chat: str) -> None:
    with Path(chat).open("a") as file:
        file.write('{"timestamp": 3, "input_length": 20, "hash_ids"')
    assert "chat.jsonl:4" in error_of(run("info", chat))


def test_bugs_keep_their_traceback(run: Run, chat: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ValueError("a bug")

    monkeypatch.setattr("kvsim.traces.opening.open_trace", broken)
    with pytest.raises(ValueError, match="a bug"):
        run("info", chat)


def test_interrupt_exits_130_quietly(run: Run, chat: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("kvsim.traces.opening.open_trace", interrupted)
    assert run("info", chat) == (130, "", "")


def test_no_arguments_show_the_help(run: Run) -> None:
    outcome = run()
    assert outcome.code == 2
    assert "simulate" in outcome.out


@pytest.mark.parametrize("command", ["info", "simulate", "curve", "convert", "policies", "fetch"])
def test_every_command_has_help(run: Run, command: str) -> None:
    outcome = run(command, "--help")
    assert outcome.code == 0
    assert "Usage" in outcome.out


def test_version(run: Run) -> None:
    assert run("--version") == (0, f"kvsim {kvsim.__version__}\n", "")


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("kvsim simulate conv", ["conversation"]),
        ("kvsim info samp", ["sample"]),
        ("kvsim simulate sample --policy lru,sglang-l", ["lru,sglang-lru", "lru,sglang-lfu"]),
        ("kvsim simulate sample --policy inf", ["infinite"]),
        ("kvsim fetch moon", ["mooncake", "mooncake-report", "mooncake-report-first"]),
        ("kvsim poli", ["policies"]),
    ],
)
def test_shell_completes_names(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    line: str,
    offered: list[str],
) -> None:
    monkeypatch.setenv("_KVSIM_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", line)
    monkeypatch.setenv("COMP_CWORD", str(len(line.split()) - 1))
    with pytest.raises(SystemExit):
        main([])
    assert capsys.readouterr().out.split() == offered


@pytest.mark.parametrize("command", ["simulate", "curve"])
def test_options_stand_in_panels_of_80_columns(
    run: Run, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    text = run(command, "--help").out
    assert [panel for panel in re.findall("^╭─ (.*?) ─", text, re.M) if panel != "Arguments"] == [
        *("Options", "Cache", "Arrivals", "Trace", "Output")
    ]
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= 80


# --- as a process --------------------------------------------------------------------------------


def test_reader_that_goes_away(chat: str, tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "kvsim", "curve", str(tmp_path / chat), "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    assert process.stderr.read() == b""
    assert process.wait() == 141


def test_help_loads_nothing_heavy() -> None:
    program = (
        "import sys; from kvsim.cli import main; main(['--help']); "
        "heavy = {'numba', 'numpy', 'pandas', 'pooch', 'huggingface_hub', 'scipy', 'matplotlib'}; "
        "print(sorted(heavy & {*sys.modules}))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "[]"


# Two runs end; the others wait for ever. Says when the two are known to be done.
STUCK_AFTER_TWO = """
import signal, sys, threading, time
from kvsim.cache import sweep
from kvsim.cli import main

signal.signal(signal.SIGINT, signal.default_int_handler)  # jobs in the background ignore it
run, told = sweep.simulate, threading.Semaphore(0)

def simulate(trace, policy, capacity, **options):
    if capacity < 3:
        result = run(trace, policy, capacity, **options)
        told.release()
        return result
    told.acquire(), told.acquire()
    time.sleep(0.5)
    print("two are done", file=sys.stderr, flush=True)
    time.sleep(600)

sweep.simulate = simulate
sys.exit(main())
"""


@pytest.mark.parametrize("form", [["--json"], ["-o", "kept.json"]])
def test_interrupt_keeps_what_is_done(chat: str, tmp_path: Path, form: list[str]) -> None:
    command = [sys.executable, "-c", STUCK_AFTER_TWO, "simulate", chat, "--capacity", "1,2,3,4"]
    process = subprocess.Popen(
        [*command, *form],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    assert process.stderr.readline() == "two are done\n"
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert err == "interrupted: 2 of 4 cells done\n"
    kept = json.loads(out if form == ["--json"] else (tmp_path / "kept.json").read_text())
    assert [(row["policy"], row["capacity"], row["hit_blocks"]) for row in kept] == [
        ("lru", 1, 2),
        ("lru", 2, 2),
    ]
