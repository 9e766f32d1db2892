"""Hundreds of mutations of a run: each gives the right result or one clear line, never a traceback."""

import hashlib
import json
import os
import shutil

import numpy as np
import polars as pl
import pytest
import run_builders as runs

from castsim.base.errors import CastsimError
from castsim.runs.manifest import NAME, Manifest, write_manifest
from castsim.runs.reading import open_run
from castsim.scoring.policies import Choice
from castsim.scoring.replay import results
from castsim.scoring.tally import Plan, domains_of, score
from replay.policies.topn import TopN

PLAN = Plan((Choice(TopN),), (5, 40), "walked")


def outcome(folder):
    """The results, or the one line of the error."""
    try:
        run = open_run(folder)
        names = domains_of(run, [])
        return results(run, PLAN, score(run, PLAN, None), names, seed=0)
    except CastsimError as error:
        assert "\n" not in str(error)
        assert ";" in str(error)  # what is wrong; what to do
        return str(error)


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fuzz") / "sound"
    return runs.write(folder, [runs.prompts([9, 5]), runs.prompts([4, 6, 1], first=2, seed=1)])


@pytest.fixture
def victim(sound, tmp_path):
    return shutil.copytree(sound, tmp_path / "victim")


def flip(rng, raw):
    place = rng.integers(len(raw))
    return raw[:place] + bytes([raw[place] ^ (1 << rng.integers(8))]) + raw[place + 1 :]


def cut(rng, raw):
    return raw[: rng.integers(len(raw))]


def drop(rng, raw):
    start = rng.integers(len(raw))
    return raw[:start] + raw[start + rng.integers(1, 40) :]


def insert(rng, raw):
    place = rng.integers(len(raw))
    return raw[:place] + rng.bytes(rng.integers(1, 9)) + raw[place:]


def blank(rng, raw):
    start = rng.integers(len(raw))
    return raw[:start] + bytes(min(64, len(raw) - start)) + raw[start + 64 :]


MUTATIONS = (flip, cut, drop, insert, blank)


def reseal(folder):
    """Give every file its new digest, so that the damage reaches the Parquet reader and the row checks."""
    manifest = json.loads((folder / NAME).read_text())
    for entry in manifest["files"]:
        entry["sha256"] = hashlib.sha256((folder / entry["name"]).read_bytes()).hexdigest()
    write_manifest(folder, Manifest.model_validate(manifest))


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda m: m.__name__)
def test_damage_to_the_sample_run(sample, tmp_path, mutation):
    """Forty damages of one kind to a random file of the sample run: all are caught, since every byte has a digest."""
    rng = np.random.default_rng(MUTATIONS.index(mutation))
    for i in range(40):
        folder = shutil.copytree(sample, tmp_path / str(i), copy_function=os.symlink)
        file = rng.choice(sorted(folder.iterdir()))
        raw = file.read_bytes()
        file.unlink()  # the link, not the sample
        file.write_bytes(mutation(rng, raw))
        found = outcome(folder)
        assert isinstance(found, str) or file.read_bytes() == raw or json.loads(file.read_bytes()) == json.loads(raw)


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda m: m.__name__)
def test_damage_that_the_digests_do_not_see(sound, tmp_path, mutation):
    """Forty damages of one kind, resealed, so that they reach the Parquet reader and the row checks.

    A change of, say, a log-probability makes another sound run: what is accepted must be whole and finite.
    """
    rng = np.random.default_rng([MUTATIONS.index(mutation), 1])
    caught = 0
    for i in range(40):
        folder = shutil.copytree(sound, tmp_path / str(i))
        file = rng.choice(sorted(folder.glob("*.parquet")))
        file.write_bytes(mutation(rng, file.read_bytes()))
        reseal(folder)
        found = outcome(folder)
        caught += isinstance(found, str)
        if not isinstance(found, str):
            assert found[-1]["rounds"] > 0
            assert all(np.isfinite(r["committed_pooled"]) for r in found if r["rounds"])
    assert caught >= 20  # the test would be idle otherwise


def integers(rng, values):
    values.flat[rng.integers(values.size)] = rng.choice([-1, -(2**31), 2**31 - 1, 0, 7, 49, 50])
    return values


def reals(rng, values):
    values.flat[rng.integers(values.size)] = rng.choice([np.nan, np.inf, -np.inf, 0.0, 1e-3, 5.0, -0.5, -80.0])
    return values


@pytest.mark.parametrize("column", ["prompt", "position", "root", "token", "logq", "context", "chain_accepted"])
def test_wrong_values_in_sound_files(sound, tmp_path, column):
    """Thirty wrong values a column, resealed: caught by name and row, or harmless to rounds and tokens."""
    expected = outcome(sound)
    rng = np.random.default_rng(len(column))
    for i in range(30):
        folder = shutil.copytree(sound, tmp_path / str(i))
        name = f"rounds-0000{rng.integers(2)}.parquet"
        frame = pl.read_parquet(folder / name)
        values = (reals if column == "logq" else integers)(rng, frame[column].to_numpy().copy())
        runs.alter(folder, name, pl.Series(column, values, dtype=frame.schema[column]))
        found = outcome(folder)
        if isinstance(found, str):
            assert f"{name}, row group" in found
        else:
            same = [sum(r["rounds"] * r["committed_pooled"] for r in rows if r["rounds"]) for rows in (found, expected)]
            assert same[0] == pytest.approx(same[1])  # walked, every token is emitted once whatever the trees are


@pytest.mark.parametrize("seed", range(60))
def test_wrong_facts_in_a_resealed_manifest(victim, sound, seed):
    """Any fact replaced by any other value and sealed again: refused, or of no consequence."""
    rng = np.random.default_rng(seed)
    manifest = json.loads((victim / NAME).read_text())
    places = [(manifest, k) for k in manifest] + [(manifest["facts"], k) for k in manifest["facts"]]
    places += [(entry, k) for entry in manifest["files"] for k in entry]
    holder, key = places[rng.integers(len(places))]
    holder[key] = [None, -1, 0, 1, 3, 10**12, "", "x", [], {}, [1], True, 0.5][rng.integers(13)]
    try:
        write_manifest(victim, Manifest.model_validate(manifest))
    except ValueError:
        (victim / NAME).write_text(json.dumps(manifest))
    found = outcome(victim)
    assert isinstance(found, str) or [r["rounds"] for r in found] == [r["rounds"] for r in outcome(sound)]
