"""Very small runs: every verb answers in whole JSON without NaN, or refuses in one line; what has no value is null."""

import json

import numpy as np
import pytest
import run_builders as runs
from run_builders import document

from castsim.base.numbers import ends_or_none, or_none

LENGTHS = {"one round": [2], "one cut": [3], "one whole": [5], "all cut": [2] * 6, "mostly cut": [2, 2, 2, 9]}
VERBS = [
    ("allocate", "--batch", "1", "--batches", "4", "--per-request", "4"),
    ("allocate", "--batch", "2", "--batches", "4", "--per-request", "1"),
    ("replay",),
    ("replay", "--mode", "per-round", "--policy", "topN,chain"),
    ("replay", "--policy", "costaware,perround", "--probe", "pair-cpu"),
    ("calibrate",),
    ("width", "--masses"),
    ("width", "--budgets", "15", "--masses"),
    ("forecast",),
    ("serve", "--concurrency", "1", "--requests", "1"),
    ("serve", "--rate", "2", "--requests", "2", "--concurrency", "2", "--window", "all"),
]


def no_number(word):
    raise AssertionError(f"{word} in the JSON")


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("layout", ["dense", "sparse"])
@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS)
def test_every_verb_answers_without_nan_or_refuses_in_one_line(castsim, tmp_path, lengths, layout):
    known = runs.facts(layout=layout, logged_by=None if layout == "dense" else "chain")
    folder = runs.write(tmp_path / "run", [runs.prompts(lengths)], known)
    for verb, *options in VERBS:
        asked = (verb, *options, folder) if options[-1:] == ["--masses"] else (verb, folder, *options)
        code, out, err = castsim(*asked, "--json", "-")
        if code == 2:
            assert (out, err.count("\n")) == ("", 1), asked
            continue
        assert (code, err) == (0, ""), asked
        json.loads(out, parse_constant=no_number)
        code, out, _ = castsim(*asked)
        assert code == 0 and "nan" not in out.split(), asked


def test_a_gain_on_nothing_is_null_with_a_reason(castsim, tmp_path):
    folder = runs.write(tmp_path / "run", [runs.prompts([2, 2, 2, 9])])
    found = document(castsim, "allocate", folder, "--batch", "1", "--batches", "4", "--per-request", "4")
    (row,) = found["results"]
    assert row["allocators"]["uniform"]["gain_over_uniform_ci95"] is None
    assert any("the even split accepts nothing" in line for line in found["caveats"])


@pytest.mark.parametrize("asked", [("width", "--masses"), ("forecast",)], ids=lambda asked: asked[0])
def test_a_run_whose_logged_rounds_are_all_cut_is_refused(castsim, tmp_path, asked):
    known = runs.facts(layout="sparse", logged_by="chain")
    folder = runs.write(tmp_path / "run", [runs.prompts([2, 2])], known)
    code, out, err = castsim(*asked, folder)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "has no round with a whole continuation" in err


def test_what_is_no_number_is_null():
    assert [or_none(float(text)) for text in ("nan", "inf", "-inf", "0")] == [None, None, None, 0.0]
    assert ends_or_none(np.array([0.0, float("inf")])) is None
