"""Which room may import what: the architecture as a test."""

import ast
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TORCH_ROOMS = ("models/", "pair/", "decode/", "checks/", "record.py", "live.py", "probe.py")
HEAVY = {"torch", "matplotlib", "joblib", "pyarrow", "transformers", "scipy", "numba"}  # only inside functions


def imported(node):
    for child in ast.walk(node):
        if isinstance(child, ast.Import):
            yield from (alias.name.split(".")[0] for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            yield child.module.split(".")[0]


@pytest.mark.parametrize("file", sorted((ROOT / "replay").rglob("*.py")), ids=lambda f: f.name)
def test_replay_imports_numpy_and_the_standard_library_only(file):
    found = set(imported(ast.parse(file.read_text())))
    assert found <= {"numpy", "replay", *sys.stdlib_module_names}


def needs_torch(file):
    place = file.relative_to(ROOT / "castsim").as_posix()
    return place.startswith(TORCH_ROOMS)


@pytest.mark.parametrize("file", sorted((ROOT / "castsim").rglob("*.py")), ids=lambda f: f.name)
def test_slow_libraries_are_imported_where_they_are_used(file):
    top = [node for node in ast.parse(file.read_text()).body if isinstance(node, (ast.Import, ast.ImportFrom))]
    allowed = {"torch", "transformers"} if needs_torch(file) else set()
    compiled = {"numba"} if file.name == "compiled.py" else set()
    assert not (HEAVY - allowed - compiled) & {name for node in top for name in imported(node)}


@pytest.mark.parametrize("file", sorted((ROOT / "castsim").rglob("*.py")), ids=lambda f: f.name)
def test_rooms_that_need_torch_are_entered_inside_functions(file):
    """`castsim --help`, replay and all that need no model work without torch."""
    top = [node for node in ast.parse(file.read_text()).body if isinstance(node, ast.ImportFrom)]
    rooms = {node.module.removeprefix("castsim.").replace(".", "/") + "/" for node in top}
    entered = {room for room in rooms if room.startswith(TORCH_ROOMS) or room in ("record/", "live/", "probe/")}
    assert needs_torch(file) or not entered


@pytest.mark.parametrize("room", ["replay", "castsim"])
def test_files_and_functions_stay_short(room):
    for file in (ROOT / room).rglob("*.py"):
        text = file.read_text()
        assert text.count("\n") <= 300, file
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                assert node.end_lineno - node.lineno < 60, f"{file}: {node.name}"
