"""What `import kvsim` offers."""

import subprocess
import sys

import pytest

import kvsim
from kvsim import TraceError
from tests.strategies import BLOCK_SIZE, to_trace


def test_every_public_name_is_there_and_listed() -> None:
    assert set(kvsim.__all__) <= set(dir(kvsim))
    for name in kvsim.__all__:
        assert getattr(kvsim, name).__doc__
    with pytest.raises(AttributeError, match="no attribute 'sweeep'"):
        _ = kvsim.sweeep


def test_importing_compiles_and_loads_nothing() -> None:
    heavy = "{'numba', 'numpy', 'pandas', 'matplotlib', 'rich', 'typer'}"
    code = f"import sys, kvsim; print({heavy} & sys.modules.keys())"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout == "set()\n"


def test_capacities_are_as_on_the_command_line() -> None:
    trace = kvsim.open_trace("sample", sessions=5)
    half = trace.distinct_blocks // 2
    for given, blocks in ((half, half), (f"{half}", half), ("50%", half), ("inf", 2 * half)):
        assert abs(kvsim.simulate(trace, "lru", given).capacity - blocks) <= 1
    size = 64 * 2 * half
    run = kvsim.simulate(trace, "lru", f"{size}B", bytes_per_token=2)
    assert run.capacity == half
    assert run.row() == kvsim.simulate(trace, "LRU", half).row()
    assert kvsim.opt(trace, f"{size}B", bytes_per_token=2).capacity == half
    table = kvsim.curve(trace, [f"{size}B"], bytes_per_token=2)
    assert table["hit_blocks"].tolist() == [run.row()["hit_blocks"]]
    grid = kvsim.sweep(trace, ["lru", "opt"], ["1k", f"{size}B"], bytes_per_token=2)
    assert grid["capacity"].tolist() == [1_000, half] * 2


def test_a_session_trace_is_replayed_only_once_it_is_arranged() -> None:
    loose = kvsim.open_trace("sample", window=None, sessions=None)
    for replay in (
        lambda: kvsim.simulate(loose, "lru", 10),
        lambda: kvsim.opt(loose, 10),
        lambda: kvsim.curve(loose),
        lambda: kvsim.sweep(loose, ["lru"], [10]),
    ):
        with pytest.raises(TraceError, match=r"own 0; .*arrange\(trace, window='8h', seed=0\)"):
            replay()
    by_hand = kvsim.simulate(kvsim.arrange(loose, "8h", 0), "lru", "10k")
    opened = kvsim.simulate(kvsim.open_trace("sample"), "lru", "10k")
    at_once = kvsim.simulate(kvsim.open_trace("sample", window=0), "lru", "10k")
    assert by_hand.row() == opened.row()
    assert f"{opened.hit_ratio:.2%} {at_once.hit_ratio:.2%}" == "92.75% 82.76%"


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda t: kvsim.simulate("sample", "lru", 1), r"'sample' is not a trace; open_trace"),
        (lambda t: kvsim.open_trace(3), "by name or path, not by 3"),
        (lambda t: kvsim.open_trace("sampel"), "did you mean 'sample'"),
        (lambda t: kvsim.simulate(t, "lru", None), "capacity None: a NoneType"),
        (lambda t: kvsim.simulate(t, "lru", "10x"), "capacity '10x'"),
        (lambda t: kvsim.simulate(t, "lru", 1, ttl="soon"), "duration 'soon'"),
        (lambda t: kvsim.simulate(t, "lur", 1), "did you mean 'lru'"),
        (lambda t: kvsim.simulate(t, 7, 1), "7"),
        (lambda t: kvsim.curve(t, [1], every=True), "exclude each other"),
    ],
)
def test_wrong_arguments_end_in_one_line(call, words: str) -> None:  # type: ignore[no-untyped-def]
    trace = to_trace([])
    with pytest.raises(TraceError, match=words) as caught:
        call(trace)
    assert "\n" not in str(caught.value)


def test_traces_say_what_they_are() -> None:
    text = repr(kvsim.open_trace("sample"))
    assert text.startswith("<Trace sample: 4,077 requests, 48 sessions, 5,396,148 blocks (")
    assert "note: Session starts drawn uniformly in 28800 s, seed 0" in text
    assert (
        repr(to_trace([]))
        == f"<Trace random: 0 requests, 0 blocks (0 distinct) of {BLOCK_SIZE} tokens>"
    )
