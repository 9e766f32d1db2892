"""The notebooks run, and what they print is what is committed."""

import importlib.util
from pathlib import Path

import pytest

nbformat = pytest.importorskip("nbformat")
jupytext = pytest.importorskip("jupytext")

ROOM = Path(__file__).parents[1] / "figures"
spec = importlib.util.spec_from_file_location("execute", ROOM / "execute.py")
execute = importlib.util.module_from_spec(spec)
spec.loader.exec_module(execute)
EACH = pytest.mark.parametrize("source", execute.sources(), ids=lambda s: s.stem)


def test_all_six_are_there():
    assert [source.stem[:2] for source in execute.sources()] == ["01", "02", "03", "04", "05", "06"]


@EACH
def test_a_notebook_is_its_script(source):
    notebook, script = nbformat.read(source.with_suffix(".ipynb"), 4), jupytext.read(source)
    assert [(c.cell_type, c.source) for c in notebook.cells] == [(c.cell_type, c.source) for c in script.cells]


@EACH
@pytest.mark.filterwarnings("default")  # of the kernel's own libraries
def test_a_notebook_runs_and_its_outputs_are_not_stale(source):
    assert execute.texts(execute.executed(source)) == execute.texts(nbformat.read(source.with_suffix(".ipynb"), 4))


@EACH
def test_a_notebook_is_small_and_names_no_machine(source):
    text = source.with_suffix(".ipynb").read_text()
    assert len(text) < 150_000
    assert str(ROOM.parent) not in text and "/home/" not in text
