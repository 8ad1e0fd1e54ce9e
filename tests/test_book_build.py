"""The chapter pipeline: parameters are checked, notebooks scrubbed, failures leave no trace."""

import base64
import importlib.util
import io
from pathlib import Path

import nbformat
import numpy as np
import pytest
from nbformat import v4
from PIL import Image

ROOT = Path(__file__).resolve().parent.parent

spec = importlib.util.spec_from_file_location("book_build", ROOT / "book" / "build.py")
build = importlib.util.module_from_spec(spec)
spec.loader.exec_module(build)

CHAPTER = """# A chapter

```{{code-cell}} ipython3
:tags: [parameters]

capacity = 10
```

```{{code-cell}} ipython3
{code}
```
"""


@pytest.fixture
def book(tmp_path, monkeypatch):
    monkeypatch.setattr(build, "BOOK", tmp_path)
    return tmp_path


def notebook(tmp_path, *cells):
    path = tmp_path / "n.ipynb"
    nbformat.write(v4.new_notebook(cells=list(cells), metadata=build.METADATA), path)
    return path


def parameters_cell(code):
    return v4.new_code_cell(code, metadata={"tags": ["parameters"]})


def picture(tmp_path, name, pixels):
    buffer = io.BytesIO()
    Image.fromarray(np.asarray(pixels, dtype=np.uint8)).save(buffer, "png")
    data = {"image/png": base64.b64encode(buffer.getvalue()).decode()}
    cell = v4.new_code_cell(outputs=[v4.new_output("display_data", data)], id="a")
    path = tmp_path / name
    nbformat.write(v4.new_notebook(cells=[cell]), path)
    return path


def test_parameters_need_a_tagged_cell(tmp_path):
    with pytest.raises(build.BuildError, match="no cell is tagged `parameters`"):
        build.check_params(notebook(tmp_path, v4.new_code_cell("capacity = 10")), {})


def test_unknown_parameter_is_refused(tmp_path):
    path = notebook(tmp_path, parameters_cell("capacity = 10"))
    with pytest.raises(build.BuildError, match="unknown parameter 'capcity'; known: capacity"):
        build.check_params(path, {"capcity": 20})


def test_number_that_yaml_reads_as_text_is_refused(tmp_path):
    (tmp_path / "p.yml").write_text("rate: 1e-3")
    path = notebook(tmp_path, parameters_cell("rate = 0.5"))
    with pytest.raises(build.BuildError, match="'1e-3' is text, not a number"):
        build.check_params(path, build.read_params(tmp_path / "p.yml"))


@pytest.mark.parametrize("text", ["- 1", "just text", "a: [1"])
def test_parameter_file_must_hold_names_and_values(tmp_path, text):
    (tmp_path / "p.yml").write_text(text)
    with pytest.raises(build.BuildError, match=r"p\.yml"):
        build.read_params(tmp_path / "p.yml")


def test_execution_is_reproducible_to_the_byte(book):
    code = 'print(object())\nprint("x")\ncapacity'
    (book / "01_a.md").write_text(CHAPTER.format(code=code))
    build.execute("01_a", {"capacity": 30}, book / "first.ipynb")
    build.execute("01_a", {"capacity": 30}, book / "second.ipynb")
    assert (book / "first.ipynb").read_bytes() == (book / "second.ipynb").read_bytes()
    cell = nbformat.read(book / "first.ipynb", as_version=4).cells[-1]
    assert cell.execution_count == 3
    assert [output.get("text") for output in cell.outputs] == ["<object object at 0x0>\nx\n", None]
    assert cell.outputs[1].data["text/plain"] == "30"


def test_failing_chapter_keeps_the_old_notebook(book, capsys):
    (book / "01_a.md").write_text(CHAPTER.format(code="1 / 0"))
    (book / "old.ipynb").write_text("old")
    assert not build.run("01_a", {}, book / "old.ipynb")
    assert (book / "old.ipynb").read_text() == "old"
    assert "ZeroDivisionError" in capsys.readouterr().err


def test_images_that_differ_by_rendering_noise_look_the_same(tmp_path):
    first = picture(tmp_path, "a.ipynb", [[0, 100, 255]])
    assert build.looks_same(first, picture(tmp_path, "b.ipynb", [[0, 100 + build.NOISE, 255]]))


@pytest.mark.parametrize("pixels", [[[0, 101 + build.NOISE, 255]], [[0, 100, 255, 255]]])
def test_images_that_differ_do_not_look_the_same(tmp_path, pixels):
    first = picture(tmp_path, "a.ipynb", [[0, 100, 255]])
    assert not build.looks_same(first, picture(tmp_path, "b.ipynb", pixels))


def test_other_text_does_not_look_the_same(tmp_path):
    paths = [tmp_path / "a.ipynb", tmp_path / "b.ipynb"]
    for path in paths:
        nbformat.write(v4.new_notebook(cells=[v4.new_markdown_cell(path.name, id="a")]), path)
    assert not build.looks_same(*paths)
