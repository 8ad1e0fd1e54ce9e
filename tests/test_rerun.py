"""Each page says how to run it again, with a file of its parameters that the build takes back."""

import importlib.util
import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from kvsim.report import rerun
from kvsim.traces.trace import TraceError
from tests.test_book import BOOK, CHAPTERS, build, code_cells, every_chapter, notebook, source

ROOT = Path(__file__).resolve().parent.parent
pytest.importorskip("sphinx")
spec = importlib.util.spec_from_file_location("kvsim_rerun", ROOT / "book/_ext/kvsim_rerun.py")
extension = importlib.util.module_from_spec(spec)
spec.loader.exec_module(extension)


def app(tmp_path, address="", text=""):
    """As much of Sphinx as the extension asks for, with one chapter `a`."""
    (tmp_path / "a.ipynb").write_text(text)
    env = SimpleNamespace(
        doc2path=lambda docname, base=True: str(tmp_path / "a.ipynb"), found_docs={"book/a"}
    )
    config = SimpleNamespace(html_theme_options={"repository_url": address} if address else {})
    builder = SimpleNamespace(format="html")
    return SimpleNamespace(env=env, config=config, builder=builder, outdir=str(tmp_path / "html"))


def cell(code, *tags):
    return {"cell_type": "code", "source": code, "metadata": {"tags": list(tags)}}


@every_chapter
def test_parameter_file_is_taken_back_by_the_build(chapter, tmp_path):
    values = extension.parameters(notebook(chapter))
    file = tmp_path / "a.yml"
    file.write_text(rerun.parameter_file(chapter, values))
    assert build.read_params(file) == values
    build.check_params(BOOK / f"{chapter}.ipynb", values)


@pytest.mark.parametrize("path", sorted(BOOK.glob("*.md")), ids=lambda path: path.stem)
def test_run_this_page_names_its_own_page(path):
    calls = [c.source for c in code_cells(source(path.stem)) if "run_this_page" in c.source]
    assert calls in ([], [f'chapter.run_this_page("{path.stem}")'])


def test_file_has_every_parameter_with_meaning_and_unit():
    text = rerun.parameter_file("a", {"trace_name": "sample", "window": 28800, "capacities": [1]})
    assert yaml.safe_load(text) == {"trace_name": "sample", "window": 28800, "capacities": [1]}
    for name in ("trace_name", "window", "capacities"):
        assert f"# {rerun.PARAMETERS[name]}\n{name}: " in text


def test_capacities_with_shares_are_explained_as_such():
    assert "5%" in rerun.meaning("a", "capacities", ["1%"])
    assert "5%" not in rerun.meaning("a", "capacities", [100])


def test_parameter_without_a_meaning_is_an_error():
    with pytest.raises(TraceError, match="a: parameter 'fuzz' has no meaning"):
        rerun.parameter_file("a", {"fuzz": 1})


def test_given_parameters_win_over_the_chapters_own():
    cells = [cell("window = 8 * 3600\nseeds = [0]", "parameters")]
    cells += [cell("seeds = [1, 2]", "injected-parameters"), cell("seeds = 3")]
    assert extension.parameters({"cells": cells}) == {"window": 28800, "seeds": [1, 2]}


def test_file_is_written_where_the_page_links_to_it(tmp_path):
    text = json.dumps({"cells": [cell("seed = 5", "parameters")]})
    extension.write_parameter_files(app(tmp_path, text=text), None)
    file = tmp_path / "html" / "book" / "params" / "a.yml"
    assert yaml.safe_load(file.read_text()) == {"seed": 5}
    assert 'href="params/a.yml"' in rerun.instructions("a")


def test_address_is_only_what_the_build_is_told(tmp_path):
    source = [json.dumps({"cells": [{"source": rerun.instructions("a")}]})]
    untouched = list(source)
    extension.name_the_repository(app(tmp_path), "book/a", source)
    assert source == untouched
    extension.name_the_repository(app(tmp_path, "https://github.com/x/y"), "book/a", source)
    text = json.loads(source[0])["cells"][0]["source"]
    assert "git clone https://github.com/x/y\ncd y\nmake setup\n" in text
    assert rerun.CLONE not in text


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (3.0, "less than a minute"),
        (60.0, "less than a minute"),
        (61.0, "less than 5 minutes"),
        (901.0, "more than 15 minutes"),
    ],
)
def test_classes_of_times(seconds, words):
    assert rerun.class_of(seconds) == words


def test_times_are_of_chapters_and_in_classes():
    times = yaml.safe_load(rerun.TIMES.read_text())
    assert set(times) <= set(CHAPTERS)
    classes = {rerun.class_of(limit) for limit in (*rerun.CLASSES, 2 * rerun.CLASSES[-1])}
    assert set(times.values()) <= classes


def test_other_results_are_named_in_the_command(monkeypatch):
    assert rerun.command("a").startswith(".venv/bin/python book/build.py a ")
    monkeypatch.setenv(rerun.FOLDER, "/tmp/r")
    assert rerun.command("a").startswith("KVSIM_RESULTS='/tmp/r' .venv/bin/python")
