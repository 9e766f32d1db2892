"""Trees beside no drafter at all: the AR row, the verdict, and what an engine is told."""

import json

import pytest
from run_builders import document

PACKED = [1, 8, 16, 32, 64, 128]
SLOW = {"packed": PACKED, "ms": [5, 22, 24, 26, 28, 40], "draft_ms": 8}  # a token alone is a fifth of a pass
FAST = {"packed": PACKED, "ms": [20, 21, 22, 23, 24, 26], "draft_ms": 2}
CHAIN_SLOW = {"packed": PACKED, "ms": [10, 10.5, 32, 33, 40, 80], "draft_ms": 1}  # few nodes pay, 15 do not


@pytest.fixture
def probe(tmp_path):
    def written(found):
        (tmp_path / "probe.json").write_text(json.dumps(found), encoding="utf-8")
        return tmp_path / "probe.json"

    return written


def test_the_table_has_a_row_without_a_drafter(castsim, probe):
    found = document(castsim, "width", "--probe", probe(FAST), "--budgets", "7,15")
    ar, chain, *trees = found["widths"]
    assert (ar["policy"], ar["ms_per_token"], ar["committed"], ar["speedup_over_ar"]) == ("AR", 20, 1, 1)
    for row in (chain, *trees[:2]):
        assert row["speedup_over_ar"] == pytest.approx(20 / row["ms_per_token"])
    assert 1 + ar["gain_over_chain"] == pytest.approx(1 / chain["speedup_over_ar"])
    assert found["verdict"]["slower_than_ar"] is False


def test_the_verdict_says_when_a_drafter_does_not_pay(castsim, probe):
    found = document(castsim, "width", "--probe", probe(SLOW))
    speedup = found["verdict"]["speedup_over_ar"]
    assert speedup < 1
    assert found["verdict"]["slower_than_ar"]
    said = f"Verdict: slower than decoding without a drafter: {speedup:.2f}x, with"
    assert found["caveats"][0].startswith(said)
    assert said in " ".join(castsim("width", "--probe", probe(SLOW))[1].split())


@pytest.mark.parametrize("engine", ["vllm", "sglang", "lucebox"])
def test_nothing_slower_is_emitted_unless_forced(castsim, probe, engine):
    asked = ("width", "--probe", probe(SLOW), "--emit", engine)
    code, out, err = castsim(*asked)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "slower than decoding without a drafter: 0." in err and "--force" in err
    code, out, _ = castsim(*asked, "--force")
    assert code == 0
    assert out.count("\n") == 1


def test_an_engine_of_chains_is_judged_by_the_chain(castsim, probe):
    """The tree pays, the chain that vLLM would run in its place does not."""
    file = probe(CHAIN_SLOW)
    found = document(castsim, "width", "--probe", file)
    assert found["verdict"]["speedup_over_ar"] > 1 > found["widths"][1]["speedup_over_ar"]
    code, _, err = castsim("width", "--probe", file, "--emit", "vllm")
    assert code == 2
    assert f"the chain that it would run is slower than decoding without a drafter: {0.0 + chain(found):.2f}x" in err
    assert castsim("width", "--probe", file, "--emit", "lucebox")[0] == 0


def chain(found):
    return found["widths"][1]["speedup_over_ar"]


def test_a_probe_without_a_pass_of_one_token_says_nothing_of_it(castsim, probe):
    found = document(castsim, "width", "--probe", probe({"packed": [8, 16, 64], "ms": [20, 22, 30], "draft_ms": 2}))
    assert found["widths"][0]["ms_per_token"] is None
    assert found["verdict"]["slower_than_ar"] is None
    assert any("no pass of one token" in line for line in found["caveats"])


def test_a_configuration_goes_with_a_picture_and_a_document(castsim, probe, tmp_path):
    picture, written = tmp_path / "width.png", tmp_path / "width.json"
    code, out, _ = castsim(
        "width", "--probe", probe(FAST), "--emit", "vllm", "--plot", picture, "--json", written, "--budgets", "7,15"
    )
    assert code == 0
    assert out.startswith("vllm serve") and out.count("\n") == 1
    assert picture.stat().st_size > 20_000
    assert json.loads(written.read_text(encoding="utf-8"))["engine"]["text"] == out.strip()


def test_named_widths_without_an_answer_are_told(castsim, probe):
    found = document(castsim, "width", "--probe", probe(FAST), "--budgets", "7,200,300")
    assert found["grid"] == [7]
    assert "No answer for N = 200, 300: the probe prices trees of at most 127 nodes." in found["caveats"]
    asked = ("width", "--probe", "blackwell-qwen3-8b", "--masses", "qwen3-8b-gsm8k", "--budgets", "15,20")
    assert any("No answer for N = 20: R is known at 15, 31" in line for line in document(castsim, *asked)["caveats"])
