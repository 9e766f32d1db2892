"""Where no locale is set and Python may not help itself: every verb runs, and what it writes and prints is whole."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import run_builders as runs
from run_builders import document

BARE = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONPATH": str(Path(__file__).parents[2])}
NO_MODEL = [
    ["replay", "run", "--budgets", "5", "--json", "replay.json", "--csv", "replay.csv"],
    ["replay", "run", "--budgets", "5", "--json", "-"],
    ["import", "log.jsonl", "--out", "imported", "--json", "import.json"],
    ["width", "--masses", "run", "--probe", "blackwell-qwen3-8b", "--budgets", "5,15", "--json", "width.json"],
    ["forecast", "run", "--probe", "blackwell-qwen3-8b", "--budgets", "5", "--json", "forecast.json"],
    ["calibrate", "run", "--json", "calibrate.json", "--plot", "calibrate.svg"],
    ["simulate", "--rounds", "300", "--out", "simulated", "--json", "simulate.json"],
    ["fit-profile", "simulated", "--rows", "256", "--steps", "1", "--out", "mine.json", "--json", "fit.json"],
    ["report-profile", "mine.json", "--rows", "256", "--json", "profile.json"],
    ["allocate", "run", "--batch", "2", "--batches", "50", "--per-request", "8", "--json", "allocate.json"],
    ["serve", "run", "--requests", "4", "--concurrency", "2", "--json", "serve.json"],
    ["report", "run", "--out", "report.html"],
    ["policies"],
    ["replay", "--help"],
]
WITH_MODEL = [
    ["probe", "--packed", "1,4", "--prefix", "8", "--iterations", "1", "--warmups", "0", "--out", "probe.json"],
    ["record", "--prompts", "p.jsonl", "--max-new-tokens", "4", "--out", "recorded", "--json", "record.json"],
    [
        "live",
        "--prompts",
        "p.jsonl",
        "--max-new-tokens",
        "4",
        "--budgets",
        "7",
        "--repeats",
        "1",
        "--json",
        "live.json",
    ],
    ["generate", "Hello", "--max-new-tokens", "4", "--json", "generate.json"],
    ["check", "--prompts", "p.jsonl", "--max-new-tokens", "4", "--budgets", "7", "--json", "check.json"],
]
EACH = """
import json, sys
from castsim.cli import app
codes = []
for arguments in json.loads(sys.argv[1]):
    sys.argv = ["castsim", *arguments]
    try:
        app.main()
    except SystemExit as left:
        codes.append(left.code or 0)
sys.exit(f"exit codes {codes}")
"""


def bare(folder, *command):
    """A command's outcome in `folder`, in the bare locale; what it prints stays bytes."""
    return subprocess.run([sys.executable, *command], cwd=folder, env={**os.environ, **BARE}, capture_output=True)


def whole(folder, commands):
    """Run verbs in one process and see that each ends well and leaves no half or empty file; gives what they print."""
    done = bare(folder, "-c", EACH, json.dumps(commands))
    assert done.stderr.decode().splitlines()[-1] == f"exit codes {[0] * len(commands)}", done.stderr.decode()
    assert not list(folder.rglob("*.part"))
    assert not [file for file in folder.rglob("*") if file.is_file() and not file.stat().st_size]
    for file in folder.glob("*.json"):
        json.loads(file.read_text(encoding="utf-8"))
    return done.stdout.decode("utf-8")


@pytest.fixture
def folder(tmp_path):
    runs.write(tmp_path / "run", [runs.prompts([40] * 6, domains=("größe", "ångström"))])
    line = {"prompt_id": "é", "domain": "größe", "prompt_tokens": [], "output_tokens": [1, 2]}
    rounds = [{"position": 0, "token": [[2, 4]], "logq": [[-1.0, -2.0]]}]
    (tmp_path / "log.jsonl").write_text(json.dumps({**line, "rounds": rounds}, ensure_ascii=False), encoding="utf-8")
    prompt = {"prompt": "Größe 日本", "id": "é", "domain": "größe"}
    (tmp_path / "p.jsonl").write_text(json.dumps(prompt, ensure_ascii=False), encoding="utf-8")
    return tmp_path


def test_every_verb_without_a_model_writes_and_prints_whole(castsim, folder):
    printed = whole(folder, NO_MODEL)
    assert "größe" in printed and "ångström" in printed
    found = json.loads((folder / "replay.json").read_text(encoding="utf-8"))
    assert found["results"] == document(castsim, "replay", folder / "run", "--budgets", "5")["results"]
    assert "größe" in (folder / "replay.csv").read_text(encoding="utf-8")
    assert "größe" in (folder / "report.html").read_text(encoding="utf-8")


def test_every_verb_with_a_model_writes_and_prints_whole(folder):
    pytest.importorskip("torch")
    whole(folder, WITH_MODEL)
    assert json.loads((folder / "record.json").read_text(encoding="utf-8"))["run"]["domains"] == ["größe"]


def test_a_name_that_the_locale_cannot_read_is_refused_in_one_line(folder):
    done = bare(folder, "-m", "castsim", "replay", os.fsdecode("rungröße".encode()))
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr.decode("utf-8") == (
        "castsim: rungröße: holds letters that are no ascii; set PYTHONUTF8=1, or give another name\n"
    )
