"""castsim width: probes, masses and engines read right, the answer, and what it says of its own weakness."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from run_builders import document

from castsim.advice.acceptance import mass_names, of_file, published
from castsim.advice.engines import ENGINES, configuration
from castsim.advice.forecast import committed_draws, fitted_overhead, forecast
from castsim.advice.per_round import played
from castsim.advice.width import GRID, noise, rules, verdict, widths
from castsim.base.errors import CastsimError, OptionError
from castsim.costs.curve import Cost, noisy_costs, overhead_of, scatter
from castsim.costs.probefile import Probe, open_probe, presets
from castsim.runs.reading import open_run
from replay.latency import LatencyCurve
from replay.policies.topn import TopN
from replay.width import Overhead

PACKED = [1, 16, 32, 64, 128]
BLACKWELL = ("width", "--probe", "blackwell-qwen3-8b", "--masses", "qwen3-8b-gsm8k")


def cost(ms, packed=PACKED, draft_ms=2.0, **more):
    return Cost(LatencyCurve(np.array(packed), np.array(ms, float), **more), draft_ms)


def saved(path, **changes):
    found = {"packed": PACKED, "ms": [10, 11, 12, 13, 20], "draft_ms": 2, **changes}
    path.write_text(json.dumps(found))
    return path


def test_every_published_probe_is_there_and_opens():
    """17 of Tables 5 and 6 and H.2, prefixes of one session together, and two of Table 11."""
    assert len(presets()) == 13
    curves = [open_probe(name).curve() for name in presets()]
    assert sum(len(curve.prefix) for curve in curves) == 17 + 4
    assert all(open_probe(name).source.startswith("Lee and Eo") for name in presets())


def test_a_probe_file_comes_back_as_it_was_written(tmp_path):
    whole = open_probe("h100-sxm-qwen3-8b-prefixes")
    file = tmp_path / "probe.json"
    file.write_text(whole.model_dump_json())
    assert open_probe(str(file)) == whole


def test_a_table_and_a_hand_written_file_are_probes_too(tmp_path):
    table, hand = tmp_path / "probe.csv", saved(tmp_path / "probe.json")
    table.write_text(
        "packed,ms,draft_ms\n" + "".join(f"{n},{ms},2\n" for n, ms in zip(PACKED, [10, 11, 12, 13, 20], strict=True))
    )
    for file in (table, hand):
        found = open_probe(str(file)).curve()
        assert found.packed.tolist() == PACKED
        assert found.ms.tolist() == [[[10, 11, 12, 13, 20]]]
        assert found.draft_ms.tolist() == [[2]]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"packed": [16], "ms": [5]}, "one packed count"),
        ({"ms": [10, 11, float("nan"), 13, 20]}, "positive numbers"),
        ({"ms": [10, 11, -1, 13, 20]}, "positive numbers"),
        ({"ms": [10, 11, 0, 13, 20]}, "positive numbers"),
        ({"packed": [1, 16, 16, 64, 128]}, "must rise"),
        ({"ms": [10, 11, 12]}, "must have shape"),
        ({"ms": "fast"}, "ms: input should be"),
        ({"colour": "red"}, "colour: extra"),
        ({"draft_ms": -1}, "draft_ms"),
        ({"target": "a\x1b[31m"}, "target"),
    ],
)
def test_a_probe_that_no_width_can_be_chosen_from_is_refused(castsim, tmp_path, changes, said):
    code, out, err = castsim(
        "width", "--probe", saved(tmp_path / "probe.json", **changes), "--masses", "qwen3-8b-gsm8k"
    )
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert said in err


@pytest.mark.parametrize(
    "text", ["", "{", "[1, 2]", "packed,ms\n16,1\n16,2\n", "n,t\n16,1\n", "packed,ms\n16,fast\n32,2\n"]
)
def test_a_file_that_is_no_probe_is_refused(castsim, tmp_path, text):
    file = tmp_path / ("probe.csv" if "," in text and not text.startswith("[") else "probe.json")
    file.write_text(text)
    code, _, err = castsim("width", "--probe", file, "--masses", "qwen3-8b-gsm8k")
    assert (code, err.count("\n")) == (2, 1)
    assert str(file) in err


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ([0.5, 0.6] + [0.1] * 200, "falling row"),
        ([1.5] + [0.1] * 200, "falling row"),
        ([0.5, float("nan")] + [0.1] * 200, "falling row"),
        ([0.5, 0.4], "has 2 masses, fewer than the chain of 15"),
        ({"a": 1}, "masses.json"),
    ],
)
def test_masses_that_rise_or_exceed_one_are_refused(castsim, tmp_path, values, said):
    file = tmp_path / "masses.json"
    file.write_text(json.dumps(values))
    code, _, err = castsim("width", "--probe", "blackwell-qwen3-8b", "--masses", file)
    assert (code, err.count("\n")) == (2, 1)
    assert said in err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["--probe", "h200-qwen3-8b"],
            "there are pair-cpu, pair-cpu-batches, blackwell-qwen3-8b",
        ),
        (["--masses", "qwen3-8b-poems"], "there are qwen3-8b-gsm8k"),
        (["--masses", "qwen3-8b-gsm8k", "--domain", "GSM8K"], "which is no run"),
        (["--batch", "8"], "batch 8 was not measured"),
        (["--line", "ridge"], "there are least_squares, endpoints, theil_sen"),
        (["--overhead", "fast"], "--overhead fast"),
        (["--overhead", "1,2,3"], "--overhead 1,2,3"),
        (["--overhead", "-1"], "--overhead -1"),
        (["--budgets", "500"], "the probe ends at 128 packed tokens; give at most 127"),
        (["--emit", "abacus"], "--emit abacus: there are sglang, vllm, lucebox, json"),
        (["--plot", "x.gif"], "name a .png"),
        (["--probe", "blackwell-qwen3.6-27b"], "--draft-ms: the probe holds no drafter time"),
        (["--probe", "blackwell-qwen3-8b", "--masses", "qwen3-8b-gsm8k", "--budgets", "20"], "R is known at"),
    ],
)
def test_bad_options_are_one_line(castsim, arguments, said):
    code, out, err = castsim("width", *arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert said in err


def test_the_answer_for_blackwell(castsim):
    """The affine rule stops at 47, the measured curve is best at 95, and the cliff at 128 is named."""
    found = document(castsim, *BLACKWELL)
    by_rule = {rule["rule"]: rule for rule in found["rules"]}
    assert (by_rule["affine"]["budget"], by_rule["measured"]["deployed"]) == (47, 95)
    assert [(c["below"], c["above"]) for c in found["cliffs"]] == [(96, 128)]
    assert found["verdict"]["verdict"] == "tree"
    rows = {row["budget"]: row for row in found["widths"] if row["policy"] == "topN"}
    assert set(rows) == set(GRID)  # where the sweep has R
    assert rows[95]["speedup_over_ar"] == pytest.approx(5.13, abs=0.005)
    assert (rows[95]["gain_over_chain_ci95"], found["noise"]) == (None, None)  # the table has medians only
    assert any("its noise is not known" in line for line in found["caveats"])


def test_the_answer_on_a_run_has_the_replays_r(castsim):
    found = document(castsim, "width", "--budgets", "15,63")
    replayed = document(castsim, "replay", "--budgets", "15,63")["results"]
    wanted = {r["budget"]: r["committed_pooled"] for r in replayed if (r["domain"], r["policy"]) == ("all", "topN")}
    rows = [row for row in found["widths"] if row["policy"] == "topN"]
    assert {row["budget"]: row["committed"] for row in rows} == pytest.approx(wanted)
    assert [r["rule"] for r in found["rules"]][-2:] == ["per round, own ratio", "per round, best rate"]
    policies = [row["policy"].split()[0] for row in found["widths"]]
    assert policies == ["AR", "chain", "topN", "topN", "perround", "perround"]


def test_a_falling_line_is_told(castsim):
    code, out, _ = castsim("width", "--probe", "h100-sxm-qwen3-8b-prefixes", "--masses", "qwen3-8b-gsm8k")
    assert code == 0
    assert "clamped" in out and "Width by prefix" in out


def test_masses_alone_bound_the_gain_from_below(castsim, tmp_path):
    file = tmp_path / "masses.csv"
    mass = published("qwen3-8b-gsm8k", None, None, 127).mass
    file.write_text("mass\n" + "\n".join(map(str, mass)))
    found = document(castsim, "width", "--probe", "blackwell-qwen3-8b", "--masses", file)
    assert found["acceptance"]["bounded"]
    chain = found["widths"][1]
    assert chain["committed"] == pytest.approx(1 + mass[:15].sum())
    assert any("at least what is shown" in line for line in found["caveats"])
    assert of_file(file, 127, (15,)).committed.tolist() == pytest.approx([1 + mass[:15].sum()] * 2)


def test_a_chain_can_win(castsim, tmp_path):
    """Where every row costs, the width that pays is small and the tree of 63 loses."""
    steep = saved(tmp_path / "probe.json", ms=[2, 16, 32, 64, 128])
    found = document(castsim, "width", "--probe", steep, "--masses", "qwen3-8b-gsm8k", "--budgets", "63,127")
    assert found["verdict"]["verdict"] == "chain"
    assert found["verdict"]["budget"] is None


def test_more_bad_points_than_one_are_flagged_by_the_noise():
    """Scenario 20: where one bad point moves the width, the picks say so."""
    found = published("qwen3-8b-gsm8k", None, None, 127)
    curve = open_probe("blackwell-qwen3-8b").curve()
    grid = list(GRID)
    base = rules(Cost(curve, 2.75), found, GRID)[1]["deployed"]
    for place in range(1, 9):  # any point but n = 1 and the last
        bad = curve.ms.copy()
        bad[0, 0, place] *= 1.5
        spoilt = LatencyCurve(curve.packed, bad)
        moved = rules(Cost(spoilt, 2.75), found, GRID)[1]["deployed"]
        assert abs(grid.index(moved) - grid.index(base)) <= 1
        assert spoilt.transients()


def test_noise_of_a_sure_probe_is_none_and_of_a_loose_one_is_told():
    found = published("qwen3-8b-gsm8k", None, None, 127)
    line = 20 + 0.05 * np.array(PACKED)
    sure = noise(cost(line, samples_ms=np.broadcast_to(line[:, None], (5, 9))[None, None]), found, GRID, 0)
    assert max(sure["share_by_width"]["measured"].values()) == 1
    shaken = line[:, None] * np.random.default_rng(0).uniform(0.5, 1.5, (5, 9))
    loose = noise(cost(np.median(shaken, axis=1), samples_ms=shaken[None, None]), found, GRID, 0)
    assert len(loose["share_by_width"]["measured"]) > 1


def test_the_scatter_of_points_is_found_again():
    """Repeats tell it: 25 of 2 % each give a median that is known to half a percent."""
    packed = np.arange(16, 129)
    line = 20 + 0.05 * packed
    samples = line[:, None] * (1 + 0.02 * np.random.default_rng(1).standard_normal((len(packed), 25)))
    ms = np.median(samples, axis=1)
    error = 1.2533 * 0.02 / 5
    known = cost(ms, packed, samples_ms=samples[None, None])
    assert scatter(known.curve) == pytest.approx(error, rel=0.3)
    drawn = noisy_costs(known, 400, np.random.default_rng(0))
    spread = np.std([c.curve.ms[0, 0] for c in drawn], axis=0) / ms
    assert np.median(spread) == pytest.approx(error, rel=0.3)


def test_medians_alone_have_no_noise_however_they_step():
    packed = np.arange(16, 129)
    stairs = cost(20 + 5 * np.ceil(packed / 16), packed)
    assert scatter(stairs.curve) is None
    assert noisy_costs(stairs, 400, np.random.default_rng(0)) == [stairs]
    assert noise(stairs, published("qwen3-8b-gsm8k", None, None, 127), GRID, 0) is None


def test_tree_chain_or_either():
    def row(policy, gain, ends, speedup=2.0):
        of = {"gain_over_chain": gain, "gain_over_chain_ci95": ends, "speedup_over_ar": speedup}
        return {"policy": policy, "budget": 15, "speedup_over_ar_ci95": None, **of}

    def answer(gain, ends, speedup=2.0):
        return verdict([row("chain", 0.0, None, 1.5), row("topN", gain, ends, speedup)], 15)

    words = [answer(0.1, ends)["verdict"] for ends in ((0.01, 0.2), (-0.2, -0.01), (-0.1, 0.3))]
    assert words == ["tree", "chain", "either"]
    assert [answer(gain, None)["verdict"] for gain in (0.1, -0.1, None)] == ["tree", "chain", "tree"]
    assert [answer(0.1, None, speedup)["slower_than_ar"] for speedup in (1.1, 0.63, None)] == [False, True, None]
    assert answer(-0.1, None)["speedup_over_ar"] == 1.5  # the chain's, as it is chosen


@pytest.mark.parametrize("engine", ENGINES)
def test_an_engine_is_told_the_chain(engine):
    found = configuration(engine, None, 15, "Qwen/Qwen3-8B", "z-lab/Qwen3-8B-DFlash-b16")
    assert found.expresses
    assert "z-lab/Qwen3-8B-DFlash-b16" in found.text


def test_engines_that_verify_chains_say_so():
    for engine in ("sglang", "vllm"):
        found = configuration(engine, 63, 15, None, None)
        assert not found.expresses
        assert "a tree of 63 nodes cannot be expressed" in found.note
    assert "--ddtree-budget 63" in configuration("lucebox", 63, 15, None, None).text
    assert json.loads(configuration("vllm", None, 9, "t", "d").text.split("'")[1])["num_speculative_tokens"] == 9


def test_a_target_of_a_hostile_name_stays_one_argument():
    found = configuration("vllm", None, 15, "a; rm -rf /", "b'c").text
    assert "'a; rm -rf /'" in found


@pytest.mark.parametrize("engine", [*ENGINES, "json"])
def test_emit_prints_the_configuration_alone(castsim, engine):
    code, out, err = castsim(*BLACKWELL, "--emit", engine)
    assert code == 0
    if engine == "json":
        assert json.loads(out)["verb"] == "width"
    else:
        assert out.count("\n") == 1
        assert "Verdict: tree" in err


def test_the_picture_is_drawn(castsim, tmp_path):
    code, *_ = castsim(*BLACKWELL, "--plot", tmp_path / "width.png")
    assert code == 0
    assert (tmp_path / "width.png").stat().st_size > 20_000


def test_every_mass_curve_has_a_sweep():
    for name in mass_names():
        found = published(name, "Qwen/Qwen3-4B", "A6000", 95)
        assert "A6000" in found.source
        assert len(found.committed) == 1 + len(found.budgets)
        assert (np.diff(found.committed) > 0).all()


def test_overheads_from_text():
    assert overhead_of("1.5") == Overhead(1.5, 0)
    assert overhead_of("1.5,0.01") == Overhead(1.5, 0.01)
    for text in ("", "a", "1,", "-1", "nan", "inf", "1,2,3"):
        with pytest.raises(OptionError):
            overhead_of(text)


lines = st.floats(0, 3), st.floats(0, 0.1)


@given(*lines)
def test_overhead_is_found_from_live_rounds(fixed, slope):
    known = cost([10, 11, 12, 13, 20])
    nodes = [15, 31, 63]
    times = [2 + known.curve.ms_at(n + 1) + fixed + slope * n for n in nodes]
    found = fitted_overhead(known, nodes, times)
    assert (found.fixed_ms, found.slope_ms) == pytest.approx((fixed, slope), abs=1e-9)


def test_overhead_is_never_negative():
    known = cost([10, 11, 12, 13, 20])
    below = [2 + float(known.curve.ms_at(n + 1)) - 1 for n in (15, 63)]
    assert fitted_overhead(known, [15, 63], below) == Overhead(0, 0)
    assert fitted_overhead(known, [15], [16.0]) == Overhead(3.0)
    falling = [2 + float(known.curve.ms_at(n + 1)) + h for n, h in ((15, 2), (63, 1))]
    assert fitted_overhead(known, [15, 63], falling) == Overhead(1.5, 0)


def test_a_forecast_by_hand():
    """Chain of 15: R = 2 in 2 + 11 + 1 ms. Tree of 31: R = 3 in 2 + 12 + 1.5 ms. AR: 10 ms and half a ms of host."""
    known = Cost(cost([10, 11, 12, 13, 20]).curve, 2.0, Overhead(1 - 15 / 32, 1 / 32))
    r = np.array([2.0, 3.0])
    found = forecast(known, [15, 31], r, committed_draws(r, None, 0), 0, ar_host_ms=0.5)
    assert found.round_ms.tolist() == pytest.approx([14, 15.5])
    assert found.ms_per_token.tolist() == pytest.approx([7, 15.5 / 3])
    assert found.gain.tolist() == pytest.approx([0, 7 * 3 / 15.5 - 1])
    assert found.speedup.tolist() == pytest.approx([1.5, 10.5 * 3 / 15.5])


def test_a_walked_policy_is_priced_round_by_round(sample):
    """A tree of one size costs the same each round, and commits what the replay says."""
    times = 10.0 + np.arange(64)
    found = played(open_run(sample), None, TopN(63), times)
    assert found.rounds.sum() == 1377  # the README's table
    assert found.ms.sum() == pytest.approx(73 * 1377)
    assert found.emitted.sum() / found.rounds.sum() == pytest.approx(3.441, abs=5e-4)


@pytest.mark.parametrize("policy", ["costaware", "perround"])
def test_policies_that_weigh_need_a_probe(castsim, policy):
    code, _, err = castsim("replay", "--policy", policy)
    assert code == 2
    assert f"--policy {policy}: needs --probe" in err
    found = document(castsim, "replay", "--policy", policy, "--probe", "pair-cpu", "--budgets", "127")
    (row,) = [r for r in found["results"] if (r["domain"], r["policy"]) == ("all", policy)]
    assert row["nodes"] < 20  # on a CPU a node costs
    assert any("weighs a probe" in line for line in found["caveats"])


def test_a_probe_without_a_policy_that_weighs_it_is_refused(castsim):
    code, _, err = castsim("replay", "--policy", "topN", "--probe", "pair-cpu")
    assert code == 2
    assert "no chosen policy weighs it" in err


def test_all_policies_leave_out_those_that_need_a_probe(castsim):
    names = {r["policy"] for r in document(castsim, "replay", "--policy", "all", "--budgets", "7")["results"]}
    assert "topN" in names and not names & {"costaware", "perround"}


def test_the_forecast_of_the_sample(castsim):
    found = document(castsim, "forecast", "--budgets", "15,63", "--overhead", "1")
    ar, chain, *trees = found["results"]
    assert (ar["policy"], chain["policy"]) == ("AR", "chain")
    assert chain["gain_over_chain"] == 0
    assert chain["round_ms"] == pytest.approx(
        found["draft_ms"] + 1 + open_probe("pair-cpu").curve().smoothed().ms_at(16)
    )
    for row in trees:
        assert row["ms_per_token"] == pytest.approx(row["round_ms"] / row["committed_pooled"])
        low, high = row["gain_over_chain_ci95"]
        assert low < row["gain_over_chain"] < high


def test_a_forecast_from_live_points(castsim, tmp_path):
    rows = [
        {"method": "AR", "packed": 1.0, "round_ms": 4.0},
        {"method": "chain", "packed": 16.0, "round_ms": 9.0},
        {"method": "topN", "packed": 64.0, "round_ms": 13.0},
    ]
    file = tmp_path / "live.json"
    file.write_text(json.dumps({"results": rows}))
    found = document(castsim, "forecast", "--live", file)
    curve = open_probe("pair-cpu").curve()
    by_budget = {row["budget"]: row for row in found["results"]}
    assert by_budget[63]["round_ms"] == pytest.approx(13, abs=0.05)
    assert by_budget[0]["ms_per_token"] == pytest.approx(max(4.0, float(curve.ms_at(1))))


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"results": []}', '{"results": [{"method": "AR"}]}'])
def test_a_file_without_live_rounds_is_refused(castsim, tmp_path, text):
    file = tmp_path / "live.json"
    file.write_text(text)
    code, _, err = castsim("forecast", "--live", file)
    assert (code, err.count("\n")) == (2, 1)
    assert "holds no live rounds" in err


def test_errors_have_one_base():
    with pytest.raises(CastsimError):
        open_probe("nothing")


def test_probe_facts_are_kept():
    own = open_probe("pair-cpu")
    assert own.samples_ms is not None and len(own.samples_ms[0][0][0]) == 30
    assert {own.dtype, own.attention, own.warmups} == {"float32", "sdpa", 8}
    assert own.order and own.versions["torch"] and own.device
    assert isinstance(own, Probe)


def test_widths_of_a_grid_are_priced_from_one_curve():
    found = published("qwen3-8b-gsm8k", "Qwen/Qwen3-8B", "Blackwell", 127)
    rows = widths(Cost(open_probe("blackwell-qwen3-8b").curve(), 2.7517), found, (15, 127), 0)
    assert [row["policy"] for row in rows] == ["AR", "chain", "topN", "topN"]
    assert rows[1]["round_ms"] == rows[2]["round_ms"]
    assert rows[3]["round_ms"] == pytest.approx(2.7517 + 30.2501)
