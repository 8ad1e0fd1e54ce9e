"""The commands as a user types them: output forms, options, errors, exit codes."""

import csv
import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from rich.console import Console

from kvsim import cli
from kvsim.cli import main
from kvsim.report import terminal
from kvsim.report.terminal import Meter

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
CHAINS = [(0, 1024, [1, 2]), (1000, 1024, [1, 3]), (2000, 1100, [1, 2, 4])]


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


def test_ttl_expires_and_names_the_row(run: Run, chat: str) -> None:
    command = ("simulate", chat, "--policy", "lru,fifo,opt", "--capacity", "inf", "--ttl", "1500ms")
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
    assert tuple(rows[0]) == cli.RUN_FIELDS
    assert [row["inserted_blocks"] for row in rows] == ["4", ""]


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
    points = run("curve", chat, "--capacity", "inf", "--ttl", "1.5", "--json").json
    assert [p["hit_blocks"] for p in points] == [2]
    assert "TTL-1.5" in run("curve", chat, "--ttl", "1.5").out


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
    assert len(list((tmp_path / "data/raw/converted").iterdir())) == 1
    assert run("info", "t", "--json").json["requests"] == 3


# --- output --------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["--json", "--csv", ""])
def test_output_goes_to_a_file(run: Run, chat: str, tmp_path: Path, form: str) -> None:
    form_option = [form] if form else []
    shown = run("info", chat, *form_option).out
    assert run("info", chat, *form_option, "--output", "deep/out") == (0, "", "")
    assert (tmp_path / "deep/out").read_text() == shown
    assert os.listdir(tmp_path / "deep") == ["out"]


def test_tables_off_a_terminal_are_plain_and_whole(run: Run, chat: str) -> None:
    table = run("simulate", chat, "--policy", "lru,opt", "--capacity", "2").out
    assert "\x1b" not in table
    assert "…" not in table


class Clock:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        monkeypatch.setattr(terminal.time, "monotonic", lambda: self.now)


@pytest.mark.parametrize(
    ("on_terminal", "seconds", "shown"), [(True, 2, True), (True, 0.5, False), (False, 2, False)]
)
def test_progress_after_a_second_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, on_terminal: bool, seconds: float, shown: bool
) -> None:
    clock = Clock(monkeypatch)
    screen = io.StringIO()
    with Meter(Console(file=screen, force_terminal=on_terminal)) as meter:
        meter("reading", 1, 10)
        clock.now = seconds
        meter("reading", 5, 10)
        meter.task("reading")(6, 10)
    assert ("reading" in screen.getvalue()) == shown


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
        (("info", "chat.jsonl", "--output", "chat.jsonl/x"), "chat.jsonl"),
    ],
    ids=lambda value: "_".join(value) if isinstance(value, tuple) else None,
)
def test_error_is_one_line_and_exit_2(
    run: Run, chat: str, agents: str, tmp_path: Path, arguments: tuple[str, ...], says: str
) -> None:
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
        "print(sorted({'numba', 'pandas', 'pooch', 'huggingface_hub', 'scipy'} & {*sys.modules}))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "[]"
