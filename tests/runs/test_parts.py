"""Runs that are made in parts: whatever kills a writer, at whatever step, the next one makes the same run."""

import os
import shutil
from functools import partial
from pathlib import Path

import polars as pl
import pytest
import run_builders as runs

from castsim.base.errors import RunLogError
from castsim.profiles.model import Model
from castsim.profiles.simulate import Shape, simulate_run
from castsim.runs.parts import is_whole, join_parts, part_folder, parts_folder
from castsim.runs.reading import open_run
from castsim.runs.writing import RunWriter, rounds_frame

SHARDS = [runs.prompts([9, 5]), runs.prompts([4, 6], first=2)]
STEPS = ("replace", "unlink", "rmdir")  # of `os`: what makes a file appear or go


class Killed(BaseException):
    """Nothing that runs behind it, as a `finally`, changes a file any more."""


def killed_at(patch, last: int) -> None:
    """Let all steps but so many fail, as those of a process that was killed do."""
    done = iter(range(last))

    def step(real, path, *more, **options):
        if not str(path).endswith(".lock") and next(done, None) is None:  # the system itself frees a lock
            raise Killed
        return real(path, *more, **options)

    for name in STEPS:
        patch.setattr(os, name, partial(step, getattr(os, name)))


def record(out: Path) -> None:
    """As a recorder does it, without models."""
    part = part_folder(out, (1, 1))
    if not is_whole(part):
        with RunWriter(part, runs.facts()) as writer:
            for sequences, rounds in SHARDS:
                if sequences["prompt_id"][0] not in writer.prompts_done:
                    writer.add(sequences, rounds_frame(rounds, sequences))
    join_parts(out, 1, runs.facts(), 4)


def simulate(out: Path) -> None:
    """Three shards."""
    simulate_run(Model(), SHAPE, out, "test")


SHAPE = Shape(prompts=3, tokens=5000, depth_max=1, rank_kept=1)


def rows(folder: Path) -> list[pl.DataFrame]:
    """Everything in a run that is read without a fault."""
    list(open_run(folder).rounds())
    return [pl.concat(pl.read_parquet(f) for f in sorted(folder.glob(f"{k}-*"))) for k in ("sequences", "rounds")]


def same(one: list[pl.DataFrame], other: list[pl.DataFrame]) -> bool:
    return all(a.equals(b) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("make", [record, simulate])
@pytest.mark.parametrize("deleted", [False, True], ids=["repeated", "deleted and repeated"])
def test_a_kill_at_any_step_loses_doubles_and_halves_no_prompt(tmp_path, make, deleted):
    """Also where the run had appeared and its owner deletes it: what is left of the parts never looks whole."""
    make(tmp_path / "at-once")
    expected, kills = rows(tmp_path / "at-once"), 0
    while True:
        out = tmp_path / f"killed-{kills}"
        with pytest.MonkeyPatch.context() as patch:
            killed_at(patch, kills)
            try:
                make(out)
                break
            except Killed:
                kills += 1
        if deleted:
            shutil.rmtree(out, ignore_errors=True)
        if not out.exists():
            make(out)
            assert not parts_folder(out).exists() and not out.with_name(f".{out.name}.gone").exists()
        assert same(rows(out), expected)
        assert not (out / "unfinished.json").exists() and not (out / ".lock").exists()
    assert kills > 10


@pytest.mark.parametrize("harm", [Path.unlink, lambda file: file.write_bytes(b"PAR1 torn")])
@pytest.mark.parametrize("name", ["sequences-00001.parquet", "rounds-00000.parquet"])
def test_a_finished_part_that_lost_a_file_is_not_joined(tmp_path, harm, name):
    out = tmp_path / "run"
    part = part_folder(out, (1, 2))
    runs.write(part, SHARDS)
    runs.write(part_folder(out, (2, 2)), [runs.prompts([7], first=4)])
    harm(part / name)
    with pytest.raises(RunLogError, match=f"001-of-002: has lost {name}"):
        join_parts(out, 2, runs.facts(), 5)
    assert not out.exists()


def test_a_simulation_goes_on_with_its_own_shards_only(tmp_path, monkeypatch):
    with monkeypatch.context() as patch, pytest.raises(Killed):
        killed_at(patch, 6)  # the facts, with what is beside them, and two shards of two files
        simulate(tmp_path / "run")
    for other in ({"prompts": 4}, {"eos_rate": 0.1}, {"seed": 1}):
        with pytest.raises(RunLogError, match=r"was begun with other settings.*delete .*run\.parts"):
            simulate_run(Model(), Shape(**{**vars(SHAPE), **other}), tmp_path / "run", "test")
    with pytest.raises(RunLogError, match="was begun with other settings"):
        simulate_run(Model(level=1), SHAPE, tmp_path / "run", "test")
    made = []
    monkeypatch.setattr("castsim.profiles.simulate.simulated_part", noted(made))
    simulate(tmp_path / "run")
    assert made == [2]


def noted(made: list[int]):
    """The real thing, which notes what it is asked for."""
    from castsim.profiles.simulate import simulated_part

    def part(model, shape, first):
        made.append(first)
        return simulated_part(model, shape, first)

    return part


def test_a_second_simulation_to_one_place_is_refused_and_harms_no_first(tmp_path, monkeypatch):
    real = Model(), SHAPE, tmp_path / "run", "test"
    from castsim.profiles.simulate import simulated_part

    def twice(model, shape, first):
        with pytest.raises(RunLogError, match="is being written by another process"):
            simulate_run(*real)
        return simulated_part(model, shape, first)

    monkeypatch.setattr("castsim.profiles.simulate.simulated_part", twice)
    simulate_run(*real)
    assert len(rows(tmp_path / "run")[0]) == 3
