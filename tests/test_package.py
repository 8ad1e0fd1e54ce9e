"""The wheel, installed alone into a fresh environment, works from any folder."""

import json
import os
import subprocess
import sys
import venv
from collections.abc import Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("package")]


def run(command: Sequence[str | Path], home: Path, cwd: Path | str = "/") -> str:
    """Run a command as a user who has nothing of this project's environment."""
    clean = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
    clean |= {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
    done = subprocess.run(
        command, cwd=cwd, env=clean | {"HOME": str(home)}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def kvsim(tmp_path_factory: pytest.TempPathFactory, home: Path) -> Path:
    """Build wheel and sdist, check them, install the wheel; return the command."""
    folder = tmp_path_factory.mktemp("package")
    run([sys.executable, "-m", "build", "--outdir", folder / "dist", ROOT], home)
    built = sorted((folder / "dist").iterdir())
    assert [path.suffix for path in built] == [".whl", ".gz"]
    assert run([sys.executable, "-m", "twine", "check", "--strict", *built], home)
    venv.create(folder / "env", with_pip=True)
    pip = [folder / "env/bin/python", "-m", "pip", "install", "--quiet"]
    run([*pip, "--constraint", ROOT / "constraints.txt", built[0]], home)
    return folder / "env/bin/kvsim"


def test_simulates_the_sample(kvsim: Path, home: Path) -> None:
    policies = "lru,fifo,liveness,opt"
    options = ["--policy", policies, "--capacity", "1k,10k,inf", "--json"]
    rows = json.loads(run([kvsim, "simulate", "sample", *options], home))
    assert [row["policy"] for row in rows[::3]] == policies.split(",")
    assert f"{rows[1]['hit_ratio']:.2%}" == "92.75%"
    assert list((home / ".local/share/kvsim/raw/converted").glob("sample-*.npz"))


def test_reads_a_file(kvsim: Path, home: Path, tmp_path: Path) -> None:
    trace = tmp_path / "mine.jsonl"
    row = {"timestamp": 0, "input_length": 600, "output_length": 1, "hash_ids": [1, 2]}
    trace.write_text(json.dumps(row) + "\n")
    assert json.loads(run([kvsim, "info", trace, "--json"], home))["blocks"] == 2


def test_lists_the_known_traces(kvsim: Path, home: Path) -> None:
    assert "conversation" in run([kvsim, "fetch", "--list"], home)


def test_python_from_elsewhere(kvsim: Path, home: Path) -> None:
    code = "import kvsim; print(kvsim.simulate(kvsim.open_trace('sample'), 'LRU', '10k').hit_ratio)"
    assert f"{float(run([kvsim.with_name('python'), '-c', code], home)):.2%}" == "92.75%"
