"""What the README tells people to type works, and its two ways give one number."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

README = (Path(__file__).resolve().parent.parent / "README.md").read_text()
COMMANDS = re.findall(r"^\$ kvsim (.+)$", README, re.M)
[SNIPPET] = re.findall(r"```python\n(.*?)```", README, re.S)


def output(*command: str) -> str:
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_there_is_something_to_try() -> None:
    assert {command.split()[0] for command in COMMANDS} == {"info", "simulate", "curve"}


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_run(command: str) -> None:
    assert output("-m", "kvsim", *command.split())


def test_python_and_the_command_line_give_one_number() -> None:
    ratio = output("-c", SNIPPET).strip()
    assert ratio == "92.75%"
    for command in COMMANDS:
        if "10k" in command:
            assert ratio in output("-m", "kvsim", *command.split())
