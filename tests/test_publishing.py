"""What leaves the project: citation, foot of the pages, workflows, the PDF."""

import importlib.util
import json
import re
from pathlib import Path

import jsonschema
import pytest
import yaml

ROOT = Path(__file__).resolve().parent.parent
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
CITATION = yaml.load((ROOT / "CITATION.cff").read_text(), yaml.BaseLoader)

sphinx_errors = pytest.importorskip("sphinx.errors")
spec = importlib.util.spec_from_file_location("kvsim_book", ROOT / "book/_ext/kvsim_book.py")
shell = importlib.util.module_from_spec(spec)
spec.loader.exec_module(shell)


def test_citation_keeps_to_the_schema():
    # Citation File Format 1.2.0, CC BY 4.0, https://citation-file-format.github.io
    schema = json.loads((ROOT / "tests" / "cff-1.2.0.schema.json").read_text())
    jsonschema.validate(CITATION, schema)
    assert {"date-released", "abstract", "keywords", "license", "type"} <= set(CITATION)


def test_citation_with_a_misspelt_key_does_not():
    schema = json.loads((ROOT / "tests" / "cff-1.2.0.schema.json").read_text())
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(CITATION | {"licence": "MIT"}, schema)


def test_foot_says_version_commit_licence_and_how_to_cite():
    foot = shell.foot("")
    for text in (f"kvsim {CITATION['version']}", "MIT", "Apache-2.0", "@software{kvsim,"):
        assert text in foot
    assert "http" not in foot
    assert "url = {https://github.com/a/b}" in shell.foot("https://github.com/a/b")


def test_bibtex_is_made_from_the_citation():
    entry = shell.bibtex(CITATION, "abc", "")
    assert f"title = {{{{{CITATION['title']}}}}}" in entry
    assert f"year = {{{CITATION['date-released'][:4]}}}" in entry
    assert "note = {commit abc}" in entry


def test_repository_is_only_what_the_build_is_told(monkeypatch):
    monkeypatch.delenv(shell.REPOSITORY, raising=False)
    assert shell.repository() == ""
    monkeypatch.setenv(shell.REPOSITORY, "owner/name")
    assert shell.repository() == "https://github.com/owner/name"


@pytest.mark.parametrize("name", ["name", "https://a.example/x", "a/b/c", "a b/c"])
def test_repository_must_be_owner_and_name(monkeypatch, name):
    monkeypatch.setenv(shell.REPOSITORY, name)
    with pytest.raises(sphinx_errors.ConfigError, match="write owner/name"):
        shell.repository()


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_actions_are_pinned_by_commit(path):
    used = re.findall(r"uses: (\S+)", path.read_text())
    assert used
    assert [one for one in used if not re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}", one)] == []


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_workflows_run_what_ci_runs_with_least_rights(path):
    workflow = yaml.safe_load(path.read_text())
    assert workflow["permissions"] == {"contents": "read"}
    steps = [step for job in workflow["jobs"].values() for step in job["steps"]]
    assert any(step.get("run") == ".ci/run" for step in steps)
    assert all(job["timeout-minutes"] <= 40 for job in workflow["jobs"].values())
