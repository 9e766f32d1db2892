"""Which room may import what: the architecture as a test."""

import ast
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
# A room imports rooms of lower floors only.
ORDER = ("base published", "runs", "scoring costs", "advice profiles serving", "live paper", "show", "cli", "__main__")
FLOOR = {room: floor for floor, rooms in enumerate(ORDER, 1) for room in rooms.split()}
WITHOUT_TORCH = ("live/__init__.py", "pair/__init__.py", "live/summary.py")  # of live/
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


def files_of(room):
    return sorted((ROOT / room).rglob("*.py"))


def room_of(file):
    return file.relative_to(ROOT / "castsim").parts[0].removesuffix(".py")


def needs_torch(file):
    return room_of(file) == "live" and f"{file.parent.name}/{file.name}" not in WITHOUT_TORCH


def rooms_imported(file, nodes=None):
    for node in ast.walk(ast.parse(file.read_text())) if nodes is None else nodes:
        if isinstance(node, ast.ImportFrom) and node.module.startswith("castsim."):
            yield node.module.split(".")[1]
        elif isinstance(node, ast.ImportFrom) and node.module == "castsim":
            yield from (alias.name for alias in node.names)


@pytest.mark.parametrize("file", files_of("castsim"), ids=lambda f: f.name)
def test_rooms_import_lower_rooms_only(file):
    """All rooms read the version in `castsim/__init__.py`, which opens them only when a name is asked for."""
    room = room_of(file)
    if room != "__init__":
        assert all(
            other == room or FLOOR[other] < FLOOR[room] for other in rooms_imported(file) if other != "__version__"
        )


def test_the_top_is_small_and_every_room_stands_in_the_order():
    top = {entry.name.removesuffix(".py") for entry in (ROOT / "castsim").iterdir() if entry.name != "__pycache__"}
    assert top - {"__init__", "py.typed"} == set(FLOOR)
    assert len(FLOOR) - 1 <= 12


def test_a_name_stands_for_one_module():
    """Only a verb has the name of what it calls."""
    files = [file for file in files_of("castsim") if room_of(file) != "cli" and file.name != "__init__.py"]
    assert len({file.name for file in files}) == len(files)


@pytest.mark.parametrize("room", [room for room in FLOOR if room != "__main__"])
def test_every_room_says_what_it_is_for(room):
    said = ast.get_docstring(ast.parse((ROOT / "castsim" / room / "__init__.py").read_text()))
    assert said and len(said) > 60


@pytest.mark.parametrize("file", sorted((ROOT / "castsim").rglob("*.py")), ids=lambda f: f.name)
def test_slow_libraries_are_imported_where_they_are_used(file):
    top = [node for node in ast.parse(file.read_text()).body if isinstance(node, (ast.Import, ast.ImportFrom))]
    allowed = {"torch", "transformers"} if needs_torch(file) else set()
    compiled = {"numba"} if file.name == "compiled.py" else set()
    assert not (HEAVY - allowed - compiled) & {name for node in top for name in imported(node)}


@pytest.mark.parametrize("file", files_of("castsim"), ids=lambda f: f.name)
def test_live_is_entered_inside_functions(file):
    """`castsim --help`, replay and all that need no model work without torch."""
    top = [node for node in ast.parse(file.read_text()).body if isinstance(node, ast.ImportFrom)]
    entered = [node for node in top if node.module != "castsim.live.summary"]
    assert room_of(file) == "live" or "live" not in set(rooms_imported(file, entered))


@pytest.mark.parametrize("room", ["replay", "castsim"])
def test_files_and_functions_stay_short(room):
    for file in (ROOT / room).rglob("*.py"):
        text = file.read_text()
        assert text.count("\n") <= 300, file
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                assert node.end_lineno - node.lineno < 60, f"{file}: {node.name}"
