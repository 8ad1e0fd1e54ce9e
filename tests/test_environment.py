"""pyproject.toml, constraints.txt and environment.yml name the same packages and versions."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import kvsim

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]


def pins(lines):
    """{name: version} of the `name==version` lines."""
    found = {}
    for line in lines:
        name, version = re.fullmatch(r"([\w.-]+)==([\w.]+)", line).groups()
        found[canonicalize_name(name)] = version
    return found


def direct(*extras):
    """What the package asks for with some extras, those that extras name included."""
    found = [Requirement(line) for line in PROJECT["dependencies"]]
    for extra in extras:
        for requirement in map(Requirement, EXTRAS[extra]):
            own = requirement.name == "kvsim"
            found += (
                direct(*sorted(requirement.extras))[len(PROJECT["dependencies"]) :]
                if own
                else [requirement]
            )
    return found


CONSTRAINTS = pins(
    line
    for line in (ROOT / "constraints.txt").read_text().splitlines()
    if line and not line.startswith("#")
)
CONDA = yaml.safe_load((ROOT / "environment.yml").read_text())["dependencies"]
PIP_LINES = next(entry["pip"] for entry in CONDA if isinstance(entry, dict))


@pytest.mark.parametrize("requirement", direct("book", "test", "bench"), ids=str)
def test_constraints_pin_what_pyproject_asks_for(requirement):
    assert CONSTRAINTS[canonicalize_name(requirement.name)] in requirement.specifier


def test_environment_yml_pins_the_same_versions():
    listed = pins(line for line in PIP_LINES if "==" in line)
    wanted = {canonicalize_name(requirement.name) for requirement in direct("book", "test")}
    assert listed == {name: CONSTRAINTS[name] for name in sorted(wanted)}


def test_environment_yml_installs_the_package_under_the_constraints():
    assert "--constraint constraints.txt" in PIP_LINES
    assert "--editable ." in PIP_LINES


def test_environment_yml_asks_for_a_supported_python():
    python = next(entry for entry in CONDA if str(entry).startswith("python="))
    assert (
        f"{python.removeprefix('python=')}.0"
        in Requirement(f"python{PROJECT['requires-python']}").specifier
    )


def test_citation_names_this_version():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert (citation["version"], citation["license"]) == (kvsim.__version__, PROJECT["license"])
