"""`castsim live`, `generate` and `check`, as a user calls them; and the promise: live is what the replay said."""

import json
import sys

import pytest
import run_builders as runs

torch = pytest.importorskip("torch")
tiny = pytest.importorskip("tiny")

from castsim.advice.pricing import pricing  # noqa: E402
from castsim.cli import app as cli  # noqa: E402
from castsim.live.checks import CheckOptions  # noqa: E402
from castsim.live.checks.greedy import Divergence, divergence, near_tie  # noqa: E402
from castsim.live.compare import LiveOptions, first_turns, live  # noqa: E402
from castsim.live.decode.loop import Decoder  # noqa: E402
from castsim.live.models.load import load_pair  # noqa: E402
from castsim.live.models.sampling import Sampling  # noqa: E402
from castsim.live.pair import PROMPTS  # noqa: E402
from castsim.live.record import Recorder, RecordOptions  # noqa: E402
from castsim.live.summary import Method  # noqa: E402
from castsim.runs.prompts import Conversation, read_prompts  # noqa: E402
from castsim.scoring.policies import choose  # noqa: E402

GRID = [Method(None), *(Method(c, n) for c in choose(["all"], []) for n in (1, 7, 15, 31, 63))]


@pytest.fixture(scope="module")
def embedded():
    torch.set_num_threads(1)
    return load_pair("pair", None, "float32", "cpu", raw=False, thinking=False)


def run(monkeypatch, *words):
    monkeypatch.setattr(sys, "argv", ["castsim", *map(str, words)])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    return stop.value.code


def pair_words(pairs, folder, *more):
    lines = [json.dumps({"prompt": text, "id": f"x{i}"}) for i, text in enumerate(["one", "def f("])]
    (folder / "prompts.jsonl").write_text("\n".join(lines))
    target, head = pairs["dflash"]
    return runs.instead(["--target", target, "--drafter", head, "--raw", "--max-new-tokens", 12], more)


def with_prompts(pairs, folder, *more):
    return pair_words(pairs, folder, "--prompts", folder / "prompts.jsonl", *more)


def measured(drafter, chat, conversations, methods, new_tokens, sampling=None, verifier="direct"):
    sampling = sampling or Sampling()
    recorder = Recorder(drafter, chat, RecordOptions(new_tokens, sampling=sampling))
    decoder = Decoder(drafter, recorder.eos_ids, sampling, verifier)
    price = pricing(choose(["perround"], []), (63,), "pair-cpu", "0", None)
    return live(recorder, decoder, conversations, methods, LiveOptions(new_tokens, repeats=0), price=price)


def test_live_rounds_are_the_walked_replays_for_every_policy_and_budget(embedded):
    """The promise, on the embedded pair: the same committed lengths, round by round; and AR's output.

    Two of the policies weigh a probe, so that their trees differ in size from run to run and round to round.
    """
    talk = first_turns(read_prompts(str(PROMPTS))[::20])
    found = measured(*embedded, talk, GRID, 40)
    ar = {d.prompt: d.output for d in found.decodes if d.method == 0}
    for d in found.decodes:
        if d.method:
            assert d.output == ar[d.prompt], GRID[d.method]
            assert d.committed == found.walked[d.method].rounds[d.prompt], GRID[d.method]


@pytest.mark.parametrize("kind", ["dflash", "dart"])
def test_the_same_on_random_pairs(pairs, kind):
    target, head = map(str, pairs[kind])
    drafter, chat = load_pair(target, head, "float32", "cpu", raw=True, thinking=False)
    talk = [Conversation(i, f"p{i}", "a", (text,), "x") for i, text in enumerate(["one", "two words"])]
    found = measured(drafter, chat, talk, GRID, 24)
    ar = {d.prompt: d.output for d in found.decodes if d.method == 0}
    assert all(d.output == ar[d.prompt] for d in found.decodes)
    assert all(d.committed == found.walked[d.method].rounds[d.prompt] for d in found.decodes if d.method)


def test_sampled_rounds_of_the_direct_verifier_are_the_walked_replays_too(embedded):
    """The recorder and the decoder draw from one stream a prompt, a number a token."""
    talk = first_turns(read_prompts(str(PROMPTS))[::15])
    methods = [Method(None), *(Method(c, 63) for c in choose(["topN,chain"], []))]
    found = measured(*embedded, talk, methods, 32, Sampling(0.8, top_k=50, top_p=0.95))
    assert all(d.committed == found.walked[d.method].rounds[d.prompt] for d in found.decodes if d.method)


def test_sampled_rounds_of_the_recursive_verifier_lie_in_the_replays_interval(embedded):
    """Means within the interval: another stream, the same law. 95 % intervals of few prompts are wide."""
    talk = first_turns(read_prompts(str(PROMPTS))[::8])
    found = measured(*embedded, talk, [Method(c, 31) for c in choose(["topN"], [])], 32, Sampling(1.0), "recursive")
    committed = [r for d in found.decodes for r in d.committed]
    low, high = found.walked[0].interval
    assert low <= sum(committed) / len(committed) <= high


def test_live_prints_one_table_and_keeps_every_round(pairs, tmp_path, monkeypatch, capsys):
    words = with_prompts(pairs, tmp_path, "--budgets", "3,7", "--repeats", 2)
    assert not run(monkeypatch, "live", *words, "--json", tmp_path / "live.json")
    out, err = capsys.readouterr()
    assert not err and all(word in out for word in ("AR", "chain", "topN", "over AR (forecast)", "commit", "2/2"))
    document = json.loads((tmp_path / "live.json").read_text())
    assert [r["method"] for r in document["results"]] == ["AR", "chain", "topN", "topN"]
    assert len(document["decodes"]) == 4 * 2 * 3  # methods, prompts, one profiled and two timed passes
    for d in document["decodes"]:
        assert sum(d["committed"]) == len(d["output"]) - 1 and len(d["packed"]) == len(d["committed"])
        assert bool(d["parts_ms"]) == (d["repeat"] == 0 and bool(d["committed"]))


def test_live_without_baselines(pairs, tmp_path, monkeypatch, capsys):
    words = with_prompts(pairs, tmp_path, "--budgets", "3", "--no-ar", "--no-chain")
    assert not run(monkeypatch, "live", *words, "--repeats", 1)
    out = capsys.readouterr().out
    assert "over AR" not in out.split("- ")[0] and "over chain" not in out.split("- ")[0]


def test_live_with_the_policy_that_is_measured_on_the_other_prompts(pairs, tmp_path, monkeypatch, capsys):
    words = with_prompts(pairs, tmp_path, "--policy", "sequoia", "--budgets", "7")
    assert not run(monkeypatch, "live", *words, "--repeats", 1, "--json", "-")
    rows = json.loads(capsys.readouterr().out)["results"]
    assert [row["prompts_equal_to_replay"] for row in rows[1:]] == [2, 2]


def test_run_and_probe_of_two_models_are_a_warning_a_field_and_refused_by_strict(pairs, tmp_path, monkeypatch, capsys):
    words = with_prompts(pairs, tmp_path, "--policy", "perround", "--budgets", "7", "--probe", "blackwell-qwen3-8b")
    assert not run(monkeypatch, "live", *words, "--repeats", 1, "--json", "-")
    found = json.loads(capsys.readouterr().out)
    assert {"target", "device"} <= {d["field"] for d in found["mismatch"]}
    assert sum(line.startswith("Warning: run and probe differ in target") for line in found["caveats"]) == 1
    assert not any("--prefix" in line or "--assume" in line for line in found["caveats"])
    monkeypatch.setattr("castsim.live.compare.live", lambda *_: pytest.fail("decoded before the refusal"))
    assert run(monkeypatch, "live", *words, "--strict") == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1) and "--strict: run and probe differ in target" in err


@pytest.mark.parametrize("more", [["--max-new-tokens", 1], ["--limit", 1]])
def test_prompts_without_a_round_and_a_single_prompt(pairs, tmp_path, monkeypatch, capsys, more):
    """No figure where there is nothing to count, and no interval of one prompt; the checks that can be made are."""
    words = with_prompts(pairs, tmp_path, *more, "--budgets", "3")
    assert not run(monkeypatch, "live", *words, "--repeats", 1, "--json", "-")
    rows = json.loads(capsys.readouterr().out)["results"]
    assert all((row["committed_pooled"] is None) == ("--limit" not in more) for row in rows)
    if "--limit" in more:
        assert not run(monkeypatch, "check", *words, "--draws", 50)
        assert "All checks passed." in capsys.readouterr().out


def test_generate_streams_the_answer_and_says_what_the_rounds_were_like(pairs, tmp_path, monkeypatch, capsys):
    words = pair_words(pairs, tmp_path)
    outputs = []
    for policy in ("ar", "chain", "topN"):
        assert not run(monkeypatch, "generate", "two words", *words, "--policy", policy, "--json", "-")
        outputs.append(json.loads(capsys.readouterr().out))
    assert outputs[0]["output"] == outputs[1]["output"] == outputs[2]["output"]
    assert not run(monkeypatch, "generate", "two words", *words)
    out, err = capsys.readouterr()
    assert out == outputs[0]["text"] + "\n" and "ms/token without prefill" in err


def test_check_passes_and_fails_by_its_exit_code(pairs, tmp_path, monkeypatch, capsys):
    words = with_prompts(pairs, tmp_path, "--draws", 50, "--budgets", "7")
    assert not run(monkeypatch, "check", *words, "--json", tmp_path / "check.json")
    assert "All checks passed." in capsys.readouterr().out
    found = json.loads((tmp_path / "check.json").read_text())
    assert found["passed"] and all(c["cases"] for c in found["checks"])
    real = Decoder.tree

    def shifted(self, *args):
        tree = real(self, *args)
        tree.depth[2:] += 1
        return tree

    monkeypatch.setattr(Decoder, "tree", shifted)  # positions that are no depths
    assert run(monkeypatch, "check", *words) == 1
    out = capsys.readouterr().out
    assert "FAIL" in out and "Failed." in out


@pytest.mark.parametrize("kind", ["gemma2", "qwen3moe"])
def test_every_check_passes_on_capped_scores_and_on_experts(tmp_path, monkeypatch, capsys, kind):
    """Parts of both that run in float32 are no fault of the decoder, and experts are multiplied in float64 too."""
    pair = {"dflash": tiny.saved_pair(tmp_path, kind=kind)}
    words = with_prompts(pair, tmp_path)
    assert not run(monkeypatch, "check", *words, "--draws", 50, "--budgets", "7", "--json", tmp_path / "check.json")
    found = json.loads((tmp_path / "check.json").read_text())
    assert [c["name"] for c in found["checks"]][1] == "packed rows equal standalone forwards, float64"
    assert not run(monkeypatch, "record", *words, "--out", tmp_path / "run")
    assert not run(monkeypatch, "live", *words, "--budgets", "7", "--repeats", 1, "--json", tmp_path / "live.json")
    assert json.loads((tmp_path / "live.json").read_text())["results"]


@pytest.mark.parametrize("margin, passes", [(0.125, True), (0.25, True), (3.0, False)])
def test_a_near_tie_is_judged_by_the_margin_of_the_ar_logits(margin, passes):
    """Scenario 15."""
    assert near_tie(Divergence(4, 7, 8, margin), CheckOptions().near_tie) == passes


def test_a_doubled_token_is_no_near_tie_whatever_stood_before(embedded):
    """Scenario 15: the first divergence is judged, where it is; a near-tie earlier in the text excuses nothing."""
    drafter, chat = embedded
    prompt = chat.ids([{"role": "user", "content": "What is 2 + 2?"}], "x")
    sequence = Decoder(drafter).begin(prompt, 24, None, None)
    for _ in Decoder(drafter).rounds(sequence, None, None):
        pass
    ar = sequence.output
    doubled = [*ar[:10], ar[9], *ar[10:-1]]
    found = divergence(drafter.target, prompt, doubled, ar)
    assert found.position >= 10 and not near_tie(found, 0.25)
    assert divergence(drafter.target, prompt, ar, ar) is None
    assert divergence(drafter.target, prompt, ar[:5], ar).margin == float("inf")


@pytest.mark.parametrize(
    "verb, more, said",
    [
        ("live", ["--device", "cuda:99"], "--device cuda:99"),
        ("live", ["--device", "meta"], "--device meta"),
        ("live", ["--prompts", "nothing.jsonl"], "nothing.jsonl: is no file"),
        ("live", ["--temperature", "-1"], "temperature -1"),
        ("live", ["--temperature", "1", "--verifier", "oracle"], "--verifier oracle: there are direct, recursive"),
        ("live", ["--policy", "oak"], "--policy oak"),
        ("live", ["--budgets", "0"], "--budgets 0"),
        ("live", ["--json", "/nowhere/x.json"], "--json /nowhere/x.json"),
        ("generate", ["--policy", "oak"], "--policy oak"),
        ("generate", ["--policy", "ar", "--set", "rank_cap=3"], "--set: has no effect with --policy ar"),
        ("generate", ["--policy", "sequoia"], "is measured on a finished run"),
        ("generate", ["--budget", "100000"], "--budget 100000"),
        ("check", ["--dtype", "int8"], "--dtype int8"),
        ("check", ["--dtype", "float32", "--near-tie", "1"], "--near-tie: has no effect with float32"),
    ],
)
def test_bad_options_are_one_line(pairs, tmp_path, monkeypatch, capsys, verb, more, said):
    prompts = [] if verb == "generate" or "--prompts" in more else ["--prompts", tmp_path / "prompts.jsonl"]
    first = ["x"] if verb == "generate" else []
    assert run(monkeypatch, verb, *first, *pair_words(pairs, tmp_path), *prompts, *more) == 2
    out, err = capsys.readouterr()
    assert said in err and err.count("\n") == 1 and not out


@pytest.mark.parametrize("verb", ["live", "generate", "check"])
def test_a_prompt_without_room_for_an_answer_is_refused(pairs, tmp_path, monkeypatch, capsys, verb):
    words = pair_words(pairs, tmp_path)
    (tmp_path / "long.jsonl").write_text(json.dumps({"prompt": "x" * 96}))
    given = ["x" * 96] if verb == "generate" else ["--prompts", tmp_path / "long.jsonl"]
    assert run(monkeypatch, verb, *given, *words) == 2
    assert "96 tokens long" in capsys.readouterr().err


def test_float16_that_overflows_is_told(pairs, tmp_path, monkeypatch, capsys):
    _, head = pairs["dflash"]
    hot = tmp_path / "hot"
    tiny.save_target(hot, initializer_range=3e4)
    words = ["--target", hot, "--drafter", head, "--raw", "--dtype", "float16"]
    assert run(monkeypatch, "generate", "one", *words) == 2
    err = capsys.readouterr().err
    assert "returns NaN or infinity in float16" in err and err.count("\n") == 1
