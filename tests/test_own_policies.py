"""Policies of one's own: files, installed packages, one name one policy, and their mistakes."""

import json
import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest

from kvsim.cache import outside, policies
from kvsim.cache.bounds import BOUNDS
from kvsim.cache.engine import Switches, replay
from kvsim.cache.policies import POLICIES, chosen, get, known, names
from kvsim.cache.policy import Policy
from kvsim.cache.reference import Request
from kvsim.cache.sweep import run, simulate
from kvsim.traces.trace import Trace, TraceError
from tests.strategies import BLOCK_SIZE, to_trace

HEAD = "import math\nimport numpy as np\nfrom numba import njit\n"
HEAD += "from kvsim.cache.policy import QUEUE, Policy, new_state\n\n"
FIRST = 1 + HEAD.count("\n")  # line of the file's own code

OWN = """\
@njit(cache=True)
def doubled(uses):
    return 2.0 * uses

def rank(state, cache, node, now):
    return doubled(cache.nodes[node].uses)

POLICY = Policy(name="NAME", summary="", source="", rank=rank, rerank="request")
"""

Write = Callable[..., str]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write a policy file; return its path."""

    def file(text: str = OWN, stem: str = "own", name: str = "own") -> str:
        path = tmp_path / f"{stem}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(HEAD + text.replace("NAME", name))
        return str(path)

    return file


@pytest.fixture(scope="module")
def trace() -> Trace:
    chains = [(1, 2), (3,), (1, 2), (4, 5), (3,), (6,), (1, 2)]
    return to_trace(
        [Request(float(time), chain, len(chain) * BLOCK_SIZE) for time, chain in enumerate(chains)]
    )


def refusal(call: Callable[[], object]) -> str:
    """Return the one line that a call ends with."""
    with pytest.raises(TraceError) as caught:
        call()
    assert "\n" not in str(caught.value)
    return str(caught.value)


# --- files ---------------------------------------------------------------------------------------

RUN_FILES = """
import sys
from kvsim.cache.policies import get
from kvsim.cache.sweep import simulate
from tests.strategies import to_trace
from kvsim.cache.reference import Request
trace = to_trace([Request(float(i), (i % 3,), 4) for i in range(6)])
print([simulate(trace, path, 2).policy for path in sys.argv[1:]])
"""
STEMS = ("random", "json", "numpy", "numba", "kvsim", "lru", "turtle", "calendar", "own", "a.b-c")


def test_file_may_have_the_name_of_any_module(write: Write) -> None:
    paths = [write(stem=stem, name=f"own-{stem}") for stem in STEMS]
    for _ in range(2):  # what the first process leaves on the disk must not break the second
        done = subprocess.run(
            [sys.executable, "-c", RUN_FILES, *paths],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout == f"{[f'own-{stem}' for stem in STEMS]}\n"
    assert {path.name for path in Path(paths[0]).parent.iterdir()} == {f"{s}.py" for s in STEMS}


def test_file_is_run_once_until_it_changes(write: Write) -> None:
    path = write()
    with ThreadPoolExecutor(8) as pool:
        loaded = set(pool.map(get, [path] * 32))
    assert len(loaded) == 1
    assert get(os.path.relpath(path)) in loaded
    write(OWN.replace("2.0", "3.0"))  # as long, and within a tick of the clock
    assert get(path) not in loaded


def test_file_reaches_other_processes(write: Write, trace: Trace) -> None:
    given = [get(write()), "LRU", "opt"]
    here = run(trace, given, [2, 3])
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        there = run(trace, given, [2, 3], executor=pool)
    assert there.equals(here)


def test_unpickled_file_is_the_same_policy(write: Write) -> None:
    policy = get(write())
    assert pickle.loads(pickle.dumps(policy)) is policy
    assert pickle.loads(pickle.dumps(replace(POLICIES["lfu"], name="mine"))).name == "mine"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "must define POLICY, a kvsim.cache.policy.Policy"),
        ("POLICY = 3", "must define POLICY, a kvsim.cache.policy.Policy"),
        ("def", f", line {FIRST}: SyntaxError: invalid syntax"),
        ("x = 1\nx / 0", f", line {FIRST + 1}: ZeroDivisionError: division by zero"),
        ("import nowhere", f", line {FIRST}: ModuleNotFoundError: No module named 'nowhere'"),
        (
            "POLICY = Policy(name='own', summary='', source='', ranks=3)",
            f", line {FIRST}: TypeError: Policy.__init__() got an unexpected keyword argument "
            "'ranks'; Policy takes: name, summary, source, rank, setup, on_request",
        ),
        (
            "POLICY = Policy(name='own', summary='')",
            "'source'; Policy takes: name, summary, source, rank",
        ),
        (
            "POLICY = Policy(name='own', summary='', source='', rerank='often')",
            "rerank is 'often'; it must be 'touch' or 'request' or 'eviction'",
        ),
        (
            "POLICY = Policy(name='own', summary='', source='', hit_cap='vllm')",
            "hit_cap is 'vllm'; it must be None or 'engine'",
        ),
        ("POLICY = Policy(name='', summary='', source='')", "name is ''; it must be a text"),
        ("from kvsim.cache.policies import get\nget('lrv')", "did you mean 'lru'?"),
    ],
)
def test_file_that_does_not_load(write: Write, text: str, says: str) -> None:
    path = write(text)
    for _ in range(2):  # a file that failed is not half there
        message = refusal(lambda: get(path))
        assert says in message
        assert Path(path).name in message


# --- names ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("lrv", "policy 'lrv' is unknown; did you mean 'lru'? known: lru, fifo"),
        ("LRV", "did you mean 'lru'?"),
        ("op", "did you mean 'opt'?"),
        ("qqqqqq", "is unknown; known: lru, fifo, lfu"),
        ("qqqqqq", "lpc, opt, infinite"),
        ("opt", "'opt' is a bound"),
        ("", "policy '' is unknown"),
        (3, "policy 3: must be a name or the path of a .py file"),
        ("no.py", "policy no.py: no such file"),
    ],
)
def test_unknown_name(name: str, says: str) -> None:
    assert says in refusal(lambda: get(name))


@pytest.mark.parametrize("name", [*POLICIES, *BOUNDS])
def test_name_in_any_case(name: str, trace: Trace) -> None:
    assert list(chosen([name.upper(), name, name.title()]).items()) == [(name, name)]
    if name in POLICIES:
        assert get(name.upper()) is POLICIES[name]
    else:
        assert simulate(trace, name.upper(), 2).policy == name


def test_known_is_what_is_built_in_and_registered() -> None:
    assert known() == POLICIES
    assert names() == [*POLICIES, *BOUNDS]


def test_policy_given_twice_counts_once(write: Write, trace: Trace) -> None:
    own = write()
    given = ["lru", own, POLICIES["lru"], "opt", get(own), own, "Lru", "opt"]
    assert list(chosen(given)) == ["lru", "own", "opt"]
    assert list(run(trace, given, [2])["policy"]) == ["lru", "own", "opt"]


@pytest.mark.parametrize("name", ["lru", "LRU", "opt"])
def test_file_may_not_have_a_known_name(write: Write, name: str) -> None:
    path = write(name=name)
    says = f"policy {name!r} is the name of two: kvsim's own and {path}; give one another name"
    assert refusal(lambda: get(path)) == says
    assert refusal(lambda: chosen([path])) == says


def test_file_may_hand_on_a_known_policy(write: Write) -> None:
    path = write("from kvsim.cache.policies import get\nPOLICY = get('lru')")
    assert get(path) is POLICIES["lru"]
    assert chosen([path, "lru"]) == {"lru": "lru"}


@pytest.mark.parametrize("other", ["own", "Own"])
def test_two_policies_of_one_name(write: Write, trace: Trace, other: str) -> None:
    paths = [write(), write(stem="another", name=other)]
    message = refusal(lambda: run(trace, paths, [2]))
    assert all(path in message for path in paths)
    assert "is the name of two" in refusal(lambda: chosen([get(path) for path in paths]))
    assert "a Policy object" in refusal(lambda: chosen([paths[0], replace(get(paths[0]))]))
    assert "kvsim's own" in refusal(lambda: chosen([replace(POLICIES["lru"])]))


def test_what_is_no_policy_is_refused() -> None:
    assert "policy 3: must be a name" in refusal(lambda: chosen([3]))  # type: ignore[list-item]


# --- installed packages --------------------------------------------------------------------------

Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Put a package with entry points on the path, as an installer would."""

    def package(name: str, module: str = HEAD + OWN, **entries: str) -> None:
        site = tmp_path / f"site_{name}"
        info = site / f"{name}-1.0.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        lines = [f"{policy} = {value}" for policy, value in entries.items()]
        (info / "entry_points.txt").write_text("\n".join([f"[{outside.GROUP}]", *lines, ""]))
        (site / f"{name}_policies.py").write_text(module.replace("NAME", "own"))
        monkeypatch.syspath_prepend(site)
        forget()

    def forget() -> None:
        outside.registered.cache_clear()
        outside.of_entry.cache_clear()
        for module in [module for module in sys.modules if module.endswith("_policies")]:
            del sys.modules[module]

    yield package
    monkeypatch.undo()
    forget()


def test_package_registers_a_policy(install: Install, trace: Trace) -> None:
    install("acme", own="acme_policies:POLICY")
    assert names() == [*POLICIES, "own", *BOUNDS]
    assert "acme_policies" not in sys.modules, "looked up before it was asked for"
    assert get("Own").name == "own"
    assert list(known()) == [*POLICIES, "own"]
    table = run(trace, ["OWN", "lfu", get("own")], [2, 3])
    assert list(table["policy"]) == ["own", "own", "lfu", "lfu"]
    assert "did you mean 'own'" in refusal(lambda: get("owm"))


@pytest.mark.parametrize(
    ("module", "value", "says"),
    [
        ("x = 1 / 0", "acme_policies:POLICY", "ZeroDivisionError: division by zero"),
        ("x = 1", "acme_policies:POLICY", "has no attribute 'POLICY'"),
        ("x = 1", "acme_nowhere:POLICY", "ModuleNotFoundError: No module named 'acme_nowhere'"),
        ("POLICY = 3", "acme_policies:POLICY", "is int; it must be a kvsim.cache.policy.Policy"),
        (
            (HEAD + OWN).replace("NAME", "other"),
            "acme_policies:POLICY",
            "the policy's own name is 'other'; they must agree",
        ),
    ],
)
def test_package_that_does_not_load(install: Install, module: str, value: str, says: str) -> None:
    install("acme", module, own=value)
    assert get("lru") is POLICIES["lru"]
    for call in (lambda: get("own"), known):
        message = refusal(call)
        assert message.startswith(f"policy own of package acme ({value}): ")
        assert says in message


@pytest.mark.parametrize("name", ["lru", "LRU", "opt"])
def test_package_may_not_take_a_known_name(install: Install, name: str) -> None:
    install("acme", **{name: "acme_policies:POLICY"})
    for call in (known, names, lambda: get("lfu"), lambda: chosen(["lfu"])):
        message = refusal(call)  # type: ignore[arg-type]
        assert message.startswith(f"policy {name!r} is the name of two: kvsim's own and that of")
        assert "package acme" in message


def test_two_packages_may_not_register_one_name(install: Install) -> None:
    install("acme", own="acme_policies:POLICY")
    install("apex", own="apex_policies:POLICY")
    message = refusal(names)
    assert "package acme" in message
    assert "package apex" in message


def test_file_may_not_have_the_name_of_a_packages(install: Install, write: Write) -> None:
    install("acme", own="acme_policies:POLICY")
    path = write()
    assert refusal(lambda: get(path)).startswith(
        f"policy 'own' is the name of two: package acme and {path}"
    )


# --- mistakes in hooks ---------------------------------------------------------------------------


def rank_file(body: str, more: str = "") -> str:
    lines = "".join(f"    {line}\n" for line in body.split("\n"))
    return (
        f"def rank(state, cache, node, now):\n{lines}\n"
        "def setup(trace, capacity, seed):\n"
        "    return new_state(trace, scalars=[1.0, 2.0], nodes=3)\n"
        f"POLICY = Policy(name='own', summary='', source='', rank=rank, setup=setup{more})"
    )


NODE_HAS = "a node has: parent, length, depth"
CACHE_HAS = "the cache has: nodes, runs, requests"
STATE_HAS = "the state has: scalars, nodes, sessions, runs, table"


@pytest.mark.parametrize(
    ("body", "line", "says"),
    [
        ("block = cache.nodes[node]\nreturn block.usess", 2, f"no field 'usess'; {NODE_HAS}"),
        ("cache.nodes[node].usess = 1\nreturn 1.0", 1, f"no field 'usess'; {NODE_HAS}"),
        ("return cache.node[node].uses", 1, f"no field 'node'; {CACHE_HAS}"),
        ("x = 1.0\nreturn x + state.scalar[0]", 2, f"no field 'scalar'; {STATE_HAS}"),
        ("state.scalar = 1\nreturn 1.0", 1, f"no field 'scalar'; {STATE_HAS}"),
        ("return math.lg(2.0)", 1, "no attribute 'lg'"),
        ("return nothing(2.0)", 1, "name 'nothing' is not defined"),
        ("return 'first'", 1, "No conversion from Literal[str](first) to float64"),
        ("pass", 1, "No conversion from none to float64"),
        ("return np.zeros(3)[0]", 1, "np.zeros(3)"),
        ("return state.scalars[0, 1]", 1, "getitem(array(float64, 1d, C)"),
    ],
)
def test_hook_that_does_not_compile(
    write: Write, trace: Trace, body: str, line: int, says: str
) -> None:
    path = write(rank_file(body))
    message = refusal(lambda: simulate(trace, path, 2))
    assert message.startswith(f"policy own: rank does not compile: {path}, line {FIRST + line}: ")
    assert says.replace("np.zeros(3)", "zeros(Literal[int](3))") in message
    assert len(message) < 700


def test_field_missing_in_a_function_that_a_hook_calls(write: Write, trace: Trace) -> None:
    helper = "@njit\ndef uses_of(block):\n    return block.usess\n\n"
    path = write(helper + rank_file("return uses_of(cache.nodes[node])"))
    message = refusal(lambda: simulate(trace, path, 2))
    assert f"{path}, line {FIRST + 2}: there is no field 'usess'; {NODE_HAS}" in message


INDEXES = "the state has 2 scalars, 0 of a table and 3 columns a node, 0 a session, 0 a run"


@pytest.mark.parametrize("rerank", ["touch", "request", "eviction"])
@pytest.mark.parametrize(
    ("body", "line", "says"),
    [
        ("x = 1.0\nreturn x + state.nodes[node, 3]", 2, f"index 3 is out of bounds.*{INDEXES}"),
        ("return state.scalars[2]", 1, f"index 2 is out of bounds.*{INDEXES}"),
        ("return state.table[now]", 1, f"out of bounds.*{INDEXES}"),
        ("return cache.nodes[node + 100].uses * 1.0", 1, "out of bounds"),
        ("return math.nan", 0, "returned nan; a rank is a number, never NaN"),
        ("x = np.inf\nreturn x - x", 0, "returned nan; a rank is a number, never NaN"),
        ("return np.log(-1.0 * cache.nodes[node].uses)", 1, "invalid value.*never NaN"),
        ("uses = cache.nodes[node].uses\nreturn uses / (now - now)", 2, "divi"),
        ("if now > 1:\n    raise ValueError('late')\nreturn 1.0", 2, "ValueError: late$"),
    ],
)
def test_hook_that_fails(
    write: Write, trace: Trace, body: str, line: int, says: str, rerank: str
) -> None:
    path = write(rank_file(body, f", rerank={rerank!r}"))
    message = refusal(lambda: simulate(trace, path, 2))
    assert message.startswith(f"policy own: rank: {path}, line {FIRST + line}: ")
    with pytest.raises(TraceError, match=says):
        simulate(trace, path, 2)


def test_sampled_candidates_are_watched_too(write: Write, trace: Trace) -> None:
    policy = get(write(rank_file("return math.nan")))
    switches = Switches(candidates=2)
    assert "never NaN" in refusal(lambda: replay(trace, policy, 2, switches=switches))


@pytest.mark.parametrize("rank", ["np.inf", "-np.inf", "1e300", "-1.0"])
def test_any_number_is_a_rank(write: Write, trace: Trace, rank: str) -> None:
    path = write(rank_file(f"return {rank}"))
    assert np.array_equal(simulate(trace, path, 2).hit_blocks, simulate(trace, "lru", 2).hit_blocks)


WRONG = {
    "rank": ("state, cache, node", "state, cache, node, now"),
    "on_request": ("state, cache, now", "state, cache, now, hit_blocks"),
    "on_touch": ("state, cache, now", "state, cache, first, last, now"),
    "on_remove": ("state, cache, node, blocks, now", "state, cache, node, blocks, now, expired"),
    "take": ("state, cache, node, blocks", "state, cache, node, blocks, now"),
    "turn": ("state, cache, node, now", "state, cache, now"),
}


@pytest.mark.parametrize("hook", WRONG)
def test_wrong_number_of_arguments(write: Write, trace: Trace, hook: str) -> None:
    has, must = WRONG[hook]
    text = f"def hook({has}):\n    return 1\n\n"
    text += f"POLICY = Policy(name='own', summary='', source='', {hook}=hook)"
    path = write(text)
    message = refusal(lambda: simulate(trace, path, 2))
    says = f"{path}, line {FIRST}: it takes ({has}); it must take ({must})"
    assert message == f"policy own: {hook}: {says}"


def test_hook_that_is_no_function(trace: Trace) -> None:
    odd = Policy(name="odd", summary="", source="", rank=3)  # type: ignore[arg-type]
    assert refusal(lambda: replay(trace, odd, 2)) == (
        "policy odd: rank is 3; it must be a function"
    )


REQUEST_OF_NOWHERE = """\
def on_HOOK(ARGUMENTS):
    x = 1
    state.nodes[x, 7] = x

POLICY = Policy(name='own', summary='', source='', on_HOOK=on_HOOK)
"""


@pytest.mark.parametrize("hook", ["on_request", "on_touch", "on_remove"])
def test_every_hook_is_watched(write: Write, trace: Trace, hook: str) -> None:
    text = REQUEST_OF_NOWHERE.replace("on_HOOK", hook).replace("ARGUMENTS", WRONG[hook][1])
    path = write(text)
    message = refusal(lambda: simulate(trace, path, 2))
    assert message.startswith(f"policy own: {hook}: {path}, line {FIRST + 2}: IndexError: ")


@pytest.mark.parametrize("taken", ["-1", "blocks + 100"])
def test_take_of_blocks_that_are_not_there(write: Write, trace: Trace, taken: str) -> None:
    text = f"def take(state, cache, node, blocks, now):\n    return {taken}\n\n"
    path = write(text + "POLICY = Policy(name='own', summary='', source='', take=take)")
    assert "from 0 to the node's resident blocks may go" in refusal(
        lambda: simulate(trace, path, 2)
    )


@pytest.mark.parametrize("rank", ["-1.0", "4 * QUEUE", "np.inf"])
@pytest.mark.parametrize("candidates", [0, 2])
def test_rank_of_no_queue(write: Write, trace: Trace, rank: str, candidates: int) -> None:
    turn = "def turn(state, cache, now):\n    return 0\n\n"
    policy = get(write(turn + rank_file(f"return {rank}", ", turn=turn")))
    switches = Switches(candidates=candidates)
    message = refusal(lambda: replay(trace, policy, 2, switches=switches))
    assert "from 0 to below 4 * QUEUE where there is a `turn`" in message


def test_sampling_ends_where_the_order_lacks_a_queue(write: Write, trace: Trace) -> None:
    turn = "def turn(state, cache, now):\n    return 0\n\n"
    policy = get(write(turn + rank_file("return 2 * QUEUE", ", turn=turn")))
    lru = replay(trace, POLICIES["lru"], 2).hit_blocks
    sampled = replay(trace, policy, 2, switches=Switches(candidates=2)).hit_blocks
    assert np.array_equal(sampled, lru)


@pytest.mark.parametrize(
    ("setup", "says"),
    [
        (
            "def setup(trace):\n    return new_state(trace)",
            "it takes (trace); it must take (trace,",
        ),
        ("def setup(trace, capacity, seed):\n    return 3", "it returned int64; it must return"),
        (
            "def setup(trace, capacity, seed):\n    return new_state(trace)._replace(scalars=[1])",
            "it must return what new_state returns",
        ),
        (
            "def setup(trace, capacity, seed):\n    return trace.nothing",
            f"line {FIRST + 1}: AttributeError: 'Trace' object has no attribute 'nothing'",
        ),
        (
            "def setup(trace, capacity, seed):\n    return new_state(trace, node=1)",
            "unexpected keyword argument 'node'",
        ),
    ],
)
def test_setup_that_fails(write: Write, trace: Trace, setup: str, says: str) -> None:
    path = write(f"{setup}\n\nPOLICY = Policy(name='own', summary='', source='', setup=setup)")
    message = refusal(lambda: simulate(trace, path, 2))
    assert message.startswith("policy own: setup: ")
    assert Path(path).name in message
    assert says in message


def test_setup_lacks_a_parameter(write: Write, trace: Trace) -> None:
    text = "def setup(trace, capacity, seed):\n    return new_state(trace)\n\n"
    text += "POLICY = Policy(name='own', summary='', source='', setup=setup, parameters={'k': 2})"
    path = write(text)
    assert "it must take (trace, capacity, seed, k)" in refusal(lambda: simulate(trace, path, 2))


def test_hook_that_numba_made(write: Write, trace: Trace) -> None:
    path = write(OWN.replace("def rank", "@njit\ndef rank"))
    assert simulate(trace, path, 2).policy == "own"


def test_watching_changes_no_count(trace: Trace, tmp_path: Path) -> None:
    folder = Path(policies.__file__).parent
    for stem in ("lfu", "slru"):
        own = POLICIES[stem.replace("_", "-")]
        copy = tmp_path / f"{stem}.py"
        copy.write_text((folder / f"{stem}.py").read_text().replace(f'"{own.name}"', '"copy"'))
        for capacity in (2, 4):
            watched, plain = simulate(trace, str(copy), capacity), replay(trace, own, capacity)
            assert np.array_equal(watched.hit_blocks, plain.hit_blocks)
            assert watched.evicted_blocks == plain.evicted_blocks


def test_command_line_ends_in_one_line(write: Write, tmp_path: Path) -> None:
    row = {"timestamp": 0, "input_length": 512, "output_length": 1, "hash_ids": [0]}
    (tmp_path / "chat.jsonl").write_text(json.dumps(row))
    for text in (rank_file("return math.nan"), "def"):
        command = ["-m", "kvsim", "simulate", str(tmp_path / "chat.jsonl"), "--capacity", "1"]
        path = write(text)
        done = subprocess.run(
            [sys.executable, *command, "--policy", path],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert (done.returncode, done.stdout) == (2, "")
        [line] = done.stderr.splitlines()
        assert line.startswith("error: policy ")
        assert path in line
