"""The simulation: its law on tiny cases, its streams, the runs it writes, and the profiles it comes from."""

import itertools
import json

import numpy as np
import pytest
import run_builders as runs
from hypothesis import given
from hypothesis import strategies as st
from run_builders import document

from castsim.base.errors import OptionError
from castsim.profiles.fit_profile import joined, run_targets
from castsim.profiles.model import RANGES, RANKS, Drawn, Model, draw, prompt_level, rank_laws, split_tables
from castsim.profiles.profile import FOLDER, Profile, ProfileError, open_profile, profile_names
from castsim.profiles.search import Effort, fit, folds
from castsim.profiles.simulate import Shape, candidates, simulate_run, simulated_part
from castsim.profiles.statistics import Sample, drawn_sample, recorded_sample, sorted_masses, statistics
from castsim.profiles.targets import Target, published_profiles
from castsim.runs.reading import open_run
from replay import Marginals, accepted, best_first, committed, policy_entry_budgets, walk
from replay.policies.binary import Binary
from replay.policies.chain import Chain
from replay.policies.schedule import Schedule
from replay.policies.topn import TopN

CALIBRATED = {"sharp": 1.0, "shift": 0.0, "off": 0.0, "tilt": 1.0, "focus": 1.0, "lost": 0.0, "common": 0.0}
GRID = ("--budgets", "15,31,47,63,95,127")  # the paper's widths
TINY = Model(**{**{"sure": 0.0, "noise": 1.0}, **CALIBRATED})


@pytest.mark.parametrize("name", RANGES)
def test_a_parameter_outside_its_range_is_refused(name):
    low, high = RANGES[name]
    for value in (low - 0.01, high + 0.01, float("nan")):
        with pytest.raises(ValueError, match=name):
            Model(**{name: value})


models = st.builds(
    Model,
    level=st.floats(-2, 5),
    between=st.floats(0, 2),
    noise=st.floats(0, 3),
    tail=st.floats(0.3, 4),
    tail_spread=st.floats(0, 1),
    link=st.floats(-0.5, 0.9),
    fade=st.floats(0, 1),
    sure=st.floats(0, 0.3),
    sharp=st.floats(0.5, 1.5),
    shift=st.floats(-1, 1),
    off=st.floats(0, 3),
    common=st.floats(0, 1),
    tilt=st.floats(0.5, 2),
    lost=st.floats(0, 0.5),
)


@given(models, st.integers(0, 50), st.integers(1, 9))
def test_beliefs_are_marginals_over_all_ranks(model, prompt, depth_max):
    """Descending, and a probability law over the 64 ranks."""
    found = draw(model, prompt, 20, depth_max, RANKS, 3)
    mass = np.exp(found.logq.astype(float))
    np.testing.assert_allclose(mass.sum(axis=2), 1, atol=1e-4)
    assert (np.diff(found.logq, axis=2) <= 1e-6).all()
    assert ((found.rank >= 0) & (found.rank <= RANKS)).all()


@given(models, st.integers(1, 4))
def test_the_law_of_true_ranks_is_one(model, depth_max):
    """On and off the spine: non-negative, adding up to 1."""
    z, place = np.array([[0.7] * depth_max]), np.arange(depth_max)[None] * 64 + 11
    for law in rank_laws(model, z, place, split_tables(model, depth_max)):
        assert law.shape == (1, depth_max, RANKS + 1)
        assert (law >= 0).all()
        np.testing.assert_allclose(law.sum(axis=2), 1)


@given(st.integers(0, 30), st.integers(1, 3))
def test_lemma_2_a_calibrated_prefix_is_right_with_its_product_score(prompt, depth_max):
    """Exact: the law of the first depths' ranks, enumerated, is the product of the beliefs."""
    found = draw(TINY, prompt, 4, depth_max, RANKS, 5)
    on, off = rank_laws(TINY, found.top, found.exponent, split_tables(TINY, depth_max))
    for root in range(4):
        for path in itertools.product((0, 1, 5), repeat=depth_max):
            mass, behind = 1.0, False
            for d, rank in enumerate(path):
                mass *= (off if behind else on)[root, d, rank]
                behind |= rank > 0
            score = found.logq[root, range(depth_max), path].astype(float).sum()
            assert mass == pytest.approx(np.exp(score), rel=2e-4)


def test_draws_follow_the_law():
    """Each rank as often as its law says, within four standard errors, on and off the spine."""
    model = Model(sure=0.0, off=1.5, lost=0.1, common=0.0, tilt=1.4)
    ranks, laws = [], []
    for prompt in range(60):
        found = draw(model, prompt, 200, 2, 8, 1)
        on, off = rank_laws(model, found.top, found.exponent, split_tables(model, 2))
        behind = found.rank[:, 0] > 0
        laws.append(np.where(behind[:, None], off[:, 1], on[:, 1]))
        ranks.append(found.rank[:, 1])
    law, rank = np.concatenate(laws), np.concatenate(ranks)
    for r in (0, 1, 2, 7, RANKS):
        expected, spread = law[:, r].sum(), np.sqrt((law[:, r] * (1 - law[:, r])).sum())
        assert abs((rank == r).sum() - expected) < 4 * spread


def test_a_token_is_as_lucky_from_every_root_as_common_says():
    """With `common` 1 and equal beliefs the token has one rank from all roots; with 0 it has not."""
    steady = {"noise": 0.0, "spread": 0.0, "between": 0.0, "decay": 0.0, "tail_spread": 0.0, "fade": 0.0, "sure": 0.0}
    for common, same in ((1.0, True), (0.0, False)):
        model = Model(**{**steady, **CALIBRATED, "level": 0.5, "common": common})
        rank = draw(model, 0, 100, 5, 8, 0).rank
        assert bool((rank[1:, :-1] == rank[:-1, 1:]).all()) is same


def test_prompts_fill_the_levels_evenly():
    levels = [prompt_level(i, 9) for i in range(200)]
    assert np.mean(levels) == pytest.approx(0, abs=0.02)
    assert np.std(levels) == pytest.approx(1, abs=0.03)


def test_one_seed_is_one_run(tmp_path):
    for name, seed in (("a", 7), ("b", 7), ("c", 8)):
        simulate_run(Model(), Shape(6, 40, seed=seed, eos_rate=0.02), tmp_path / name, "test")
    a, b, c = (next(iter(open_run(tmp_path / name).rounds())) for name in "abc")
    assert np.array_equal(a.marginals.logq, b.marginals.logq)
    assert np.array_equal(a.marginals.token, b.marginals.token)
    assert np.array_equal(a.continuation, b.continuation)
    assert not np.array_equal(a.marginals.logq[:5], c.marginals.logq[:5])


def test_shards_made_by_two_processes_are_the_serial_ones(tmp_path):
    shape = Shape(90, 200, seed=3)
    simulate_run(Model(), shape, tmp_path / "serial", "test", jobs=1)
    simulate_run(Model(), shape, tmp_path / "both", "test", jobs=2)
    one, two = (open_run(tmp_path / name).manifest for name in ("serial", "both"))
    assert len(one.files) > 2
    assert one.files == two.files


def test_a_prompt_does_not_depend_on_its_shard():
    whole, last = (simulated_part(Model(), Shape(6, 30), first) for first in (0, 4))
    mine = whole.rounds.filter(whole.rounds["prompt"] == 4)
    assert mine.equals(last.rounds.filter(last.rounds["prompt"] == 4))
    assert last.sequences["prompt"].to_list() == [4, 5]


@given(st.integers(1, 12), st.integers(0, 1000))
def test_candidates_are_distinct_and_hold_the_truth_at_its_rank(rank_kept, seed):
    rng = np.random.default_rng(seed)
    true = rng.integers(0, 130, size=(20, 3), dtype=np.int32)
    rank = rng.integers(0, RANKS + 1, size=(20, 3)).astype(np.int32)
    token = candidates(true, rank, rank_kept, 130, rng)
    ordered = np.sort(token, axis=2)
    assert (ordered[:, :, 1:] != ordered[:, :, :-1]).all()
    assert ((token >= 0) & (token < 130)).all()
    held = rank < rank_kept
    assert (token[(*np.nonzero(held), rank[held])] == true[held]).all()
    assert not (token == true[..., None])[~held].any()


@pytest.mark.parametrize("sparse", [None, "chain"])
def test_every_verb_reads_a_simulated_run(castsim, tmp_path, sparse):
    out = tmp_path / "run"
    more = ("--sparse", sparse) if sparse else ()
    found = document(
        castsim, "simulate", "--rounds", "600", "--tokens", "60", "--eos-rate", "0.02", "--out", out, *more
    )
    assert found["run"]["simulated"] is True
    assert found["run"]["layout"] == ("sparse" if sparse else "dense")
    replayed = document(castsim, "replay", out, "--budgets", "15")
    assert any("simulated" in line for line in replayed["caveats"])
    assert castsim("calibrate", out)[0] == 0
    assert castsim("width", "--probe", "blackwell-qwen3-8b", "--masses", out)[0] == 0
    assert castsim("forecast", out, "--probe", "blackwell-qwen3-8b")[0] == 0


def test_ends_of_sequence_come_at_their_rate(tmp_path):
    simulate_run(Model(), Shape(400, 200, eos_rate=0.05), tmp_path / "run", "test")
    sequences = open_run(tmp_path / "run").sequences()
    lengths = sequences["output_tokens"].list.len().to_numpy()
    assert lengths.mean() == pytest.approx(1 + 1 / 0.05, rel=0.15)
    stopped = sequences.filter(sequences["finish"] == "stop")
    assert stopped["output_tokens"].list.last().unique().to_list() == [0]
    assert (sequences["output_tokens"].list.eval(runs.pl.element() == 0).list.sum() <= 1).all()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--profile", "gpt-9"], "there are dart-qwen3-8b-gsm8k"),
        (["--profile", "../secret"], "no profile by name"),
        (["--rank-kept", "100"], "64 ranks"),
        (["--vocab-size", "20"], "give at least 128"),
        (["--eos-rate", "1"], "--eos-rate 1.0"),
        (["--tokens", "1"], "--tokens"),
        (["--sparse", "sequoia"], "measured on a finished run"),
        (["--sparse", "perround"], "weighs a probe"),
    ],
)
def test_bad_options_are_one_line(castsim, tmp_path, arguments, said):
    code, out, err = castsim("simulate", *arguments, "--rounds", "100", "--out", tmp_path / "run")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert said in err
    assert not (tmp_path / "run").exists()


def test_a_shape_is_checked():
    with pytest.raises(OptionError, match="at least 1"):
        Shape(0)


def test_statistics_of_a_log_are_the_replays(sample_rounds):
    """R, walked and on the chain's rounds, and masses, by the slow ways."""
    found = recorded_sample(sample_rounds)
    for name, policy in (
        ("chain 15", Chain(15)),
        ("topN 63", TopN(63)),
        ("binary 47", Binary(47)),
        ("schedule 47", Schedule(47)),
    ):
        entry, _ = policy_entry_budgets(policy, sample_rounds)
        emitted = committed(accepted(entry, [policy.budget]), sample_rounds.remaining)
        own = walk(sample_rounds, emitted)[:, 0]
        kind, budget = name.split()
        assert found.committed(kind, int(budget)).tolist() == emitted[:, 0].tolist()
        assert statistics(found, [f"R pooled: {name}"])[f"R pooled: {name}"] == pytest.approx(emitted[own].mean())
    some = found.logq[:40]
    ids = np.broadcast_to(np.arange(8), some.shape)
    slow = np.exp(best_first(Marginals(ids, some), 127).score[:, 1:])
    np.testing.assert_allclose(sorted_masses(some), slow, rtol=1e-9)


def hand(rank):
    """Two outputs of rows with L = 2."""
    rank = np.array(rank, np.int32)
    rows = len(rank)
    position = np.tile(np.arange(rows // 2, dtype=np.int32), 2)
    logq = np.log(np.broadcast_to([0.5, 0.2, 0.1, 0.05, 0.04, 0.03, 0.02, 0.01], (rows, 2, 8))).astype(np.float32)
    return Sample(logq, rank, np.repeat([0, 1], rows // 2).astype(np.int32), position, rows // 2 - position)


def test_statistics_by_hand():
    """Chain: prompt 0 commits 1, 1, then 2 of the last two roots' tokens; prompt 1 always 3."""
    found = hand([[1, 0], [5, 9], [0, 3], [0, 0]] + [[0, 0]] * 4)
    values = statistics(
        found,
        [
            "R pooled: chain 2",
            "R per prompt: chain 2",
            "R at every position: chain 2",
            "first rejection, ranks: 2-4",
            "first rejection, ranks: 5-8",
            "first rejection, ranks: 33-",
            "true token beyond rank: 8",
            "hit rate at depth 1: 0.4-0.6",
        ],
    )
    assert values == pytest.approx(
        {
            "R pooled: chain 2": 8 / 5,
            "R per prompt: chain 2": (4 / 3 + 4 / 2) / 2,
            "R at every position: chain 2": (1 + 1 + 2 + 3 + 3 + 2) / 6,
            "first rejection, ranks: 2-4": 2 / 3,
            "first rejection, ranks: 5-8": 1 / 3,
            "first rejection, ranks: 33-": 0,
            "true token beyond rank: 8": 1 / 8,
            "hit rate at depth 1: 0.4-0.6": 2 / 4,
        }
    )


def test_an_error_is_the_distance_to_the_printed_range():
    share, value = Target(0.1, 0.2, 0.05, "x", relative=False), Target(2.0, 2.0, 0.02, "x")
    assert [share.error(v) for v in (0.05, 0.15, 0.3)] == pytest.approx([-0.05, 0, 0.1])
    assert value.error(2.1) == pytest.approx(0.05)


def test_held_out_statistics_are_each_held_out_once():
    assert sorted(name for fold in folds(list("abcde"), 2) for name in fold) == list("abcde")


def test_a_fit_finds_a_model_that_has_the_statistics():
    """Two parameters are moved away and come back as far as the statistics need."""
    names = ["R pooled: chain 6", "R pooled: topN 15", "mass: 1", "mass: 8"]
    true = Model(level=2.0, decay=0.3)
    values = statistics(drawn_sample(true, 40, 120, 6, 77), names)
    targets = {n: Target(v, v, 0.02, "test") for n, v in values.items()}
    found = fit(targets, Model(level=4.0, decay=0.05), ["level", "decay"], 6, 120, Effort(3000, 8, 1))
    again = statistics(drawn_sample(found, 40, 120, 6, 78), names)
    assert all(abs(again[n] / values[n] - 1) < 0.05 for n in names)


def test_a_profile_of_a_recorded_run(castsim, sample, tmp_path):
    """A short fit is no good one, but its errors are told."""
    file = tmp_path / "mine.json"
    found = document(castsim, "fit-profile", sample, "--out", file, "--rows", "600", "--steps", "1")
    profile = open_profile(str(file))
    assert profile.name == "mine"
    assert found["profiles"][0]["statistics"] == json.loads(file.read_text())["statistics"]
    assert {row["statistic"] for row in profile.statistics} >= {"R pooled: chain 15", "mass: 1"}
    assert castsim("simulate", "--profile", file, "--rounds", "300", "--out", tmp_path / "run")[0] == 0
    assert castsim("report-profile", file, "--rows", "600")[0] == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "give a run to fit to, or --published"),
        (["--published", "gpt-9", "--out", "folder"], "--published gpt-9: there are qwen3-8b-gsm8k"),
        (["--published", "qwen3-8b-gsm8k", "--out", "x.json"], "name a folder"),
    ],
)
def test_bad_fits_are_one_line(castsim, tmp_path, monkeypatch, arguments, said):
    monkeypatch.chdir(tmp_path)
    code, out, err = castsim("fit-profile", *arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert said in err


@pytest.mark.parametrize(
    "change", [{"parameters": {"level": 1}}, {"colour": "red"}, {"depth_max": 0}, {"tokens": "many"}]
)
def test_a_damaged_profile_is_refused(castsim, tmp_path, change):
    good = json.loads((FOLDER / "qwen3-8b-gsm8k.json").read_text())
    file = tmp_path / "p.json"
    file.write_text(json.dumps({**good, **change}))
    code, _, err = castsim("simulate", "--profile", file, "--out", tmp_path / "run")
    assert (code, err.count("\n")) == (2, 1)
    file.write_text(json.dumps({**good, "parameters": {**good["parameters"], "common": 7}}))
    with pytest.raises(ProfileError, match="common must lie in 0 to 1"):
        open_profile(str(file))


def test_every_published_profile_is_shipped_with_its_errors():
    assert set(profile_names()) == set(published_profiles())
    for name in profile_names():
        profile = open_profile(name)
        assert isinstance(profile, Profile) and profile.statistics
        assert bool(profile.borrowed_from) == bool(published_profiles()[name].borrow)


def test_joined_rounds_are_the_shards_rows(tmp_path):
    simulate_run(Model(), Shape(90, 200), tmp_path / "run", "test")
    parts = list(open_run(tmp_path / "run").rounds())
    assert len(parts) > 1
    assert len(joined(parts)) == sum(map(len, parts))
    assert run_targets(joined(parts))["R pooled: chain 15"].relative


def test_ranks_behind_the_spine_are_worse():
    """The continuation after an off-spine token is right less often, by the parameter `off`."""
    model = Model(off=2.0, sure=0.0)
    found = [draw(model, i, 300, 2, 8, 0) for i in range(20)]
    rank = np.concatenate([f.rank for f in found])
    assert (rank[rank[:, 0] == 0, 1] == 0).mean() > 0.1 + (rank[rank[:, 0] > 0, 1] == 0).mean()
    assert isinstance(found[0], Drawn)


def test_the_simulated_gsm8k_run_gives_the_published_answers(castsim, tmp_path):
    """R at every width within 2 % of Blackwell's sweep, and the widths that the published masses give."""
    out = tmp_path / "run"
    assert castsim("simulate", "--profile", "qwen3-8b-gsm8k", "--rounds", "20000", "--seed", "7", "--out", out)[0] == 0
    rows = document(castsim, "replay", out)["results"]
    simulated = {(r["policy"], r["budget"]): r["committed_pooled"] for r in rows if r["domain"] == "all"}
    targets = published_profiles()["qwen3-8b-gsm8k"].targets
    for name, target in targets.items():
        if name.startswith("R pooled"):
            policy, budget = name.removeprefix("R pooled: ").split()
            assert abs(target.error(simulated[policy, int(budget)])) < 0.02, name
    asked = ("width", "--probe", "blackwell-qwen3-8b", *GRID, "--masses")
    rules = {
        source: {r["rule"]: r.get("deployed") for r in document(castsim, *asked, source)["rules"]}
        for source in (str(out), "qwen3-8b-gsm8k")
    }
    for rule in ("affine", "measured"):
        assert rules[str(out)][rule] == rules["qwen3-8b-gsm8k"][rule]
