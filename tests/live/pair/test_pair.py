"""The embedded pair and its recipe: what is shipped, what it was kept from, and that training resumes exactly."""

import json
import re
from dataclasses import replace

import numpy as np
import polars as pl
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from safetensors import safe_open  # noqa: E402

from castsim.live.models.load import load_pair  # noqa: E402
from castsim.live.pair import FOLDER, NAMES, PROMPTS  # noqa: E402
from castsim.live.pair.corpus import SCHEMA, Roots  # noqa: E402
from castsim.live.pair.recipe import Recipe, Schedule  # noqa: E402
from castsim.live.pair.text import HELD_OUT, Document, functions, source_files  # noqa: E402
from castsim.live.pair.training_loop import fit, learning_rate  # noqa: E402
from castsim.live.pair.vocabulary import Windows  # noqa: E402
from castsim.runs.prompts import read_prompts  # noqa: E402

MEGABYTES = 16
PUBLIC_KEYS = {"architectures", "block_size", "dflash_config", "num_target_layers", "hidden_size", "layer_types"}


@pytest.fixture(scope="module")
def pair():
    torch.set_num_threads(1)
    return load_pair("pair", None, "float32", "cpu", raw=False, thinking=False)


def test_what_is_shipped_is_small_half_precision_safetensors():
    files = [file for file in FOLDER.rglob("*") if file.is_file()]
    assert sum(file.stat().st_size for file in files) <= MEGABYTES * 2**20
    assert {file.suffix for file in files} <= {".safetensors", ".json", ".jinja", ".jsonl"}
    for name in NAMES.values():
        with safe_open(name / "model.safetensors", "pt") as weights:
            kinds = {weights.get_tensor(key).dtype for key in weights.keys() if key != "d2t"}  # noqa: SIM118
        assert kinds == {torch.float16}


def test_the_head_has_the_keys_and_names_of_public_ones():
    config = json.loads((NAMES["pair-dflash"] / "config.json").read_text())
    assert config.keys() >= PUBLIC_KEYS and config["dflash_config"].keys() == {"mask_token_id", "target_layer_ids"}
    with safe_open(NAMES["pair-dflash"] / "model.safetensors", "pt") as weights:
        names = {re.sub(r"layers\.\d+", "layers.N", key) for key in weights.keys()}  # noqa: SIM118
    assert {"fc.weight", "hidden_norm.weight", "norm.weight", "layers.N.self_attn.q_norm.weight"} <= names
    assert {"layers.N.mlp.gate_proj.weight", "layers.N.post_attention_layernorm.weight"} <= names


def test_the_block_is_the_papers_and_dart_has_eight_positions(pair):
    drafter, _ = pair
    dart, _ = load_pair("pair", "pair-dart", "float32", "cpu", raw=False, thinking=False)
    assert (drafter.depth_max, dart.depth_max) == (15, 8)
    assert dart.vocab_size < drafter.vocab_size == dart.target.vocab_size


def test_the_prompts_are_not_of_the_training_text():
    prompts = read_prompts(str(PROMPTS))
    assert len(prompts) == 60 and {c.domain for c in prompts} == {"gsm8k", "mbpp", "humaneval", "stdlib"}
    for conversation in prompts:
        name = conversation.prompt_id
        match conversation.domain:
            case "gsm8k":
                assert name.startswith("gsm8k/test/")
            case "mbpp":
                assert 11 <= int(name.removeprefix("mbpp/")) <= 510  # the test rows; training has 601 to 974
            case "stdlib":
                assert name.split("/")[1] in HELD_OUT
    trained, held_out = source_files(held_out=False), source_files(held_out=True)
    assert len(trained) > 300 and {file.stem for file in held_out} >= {"statistics", "heapq"}
    assert not {file.stem for file in trained if file.parent == held_out[0].parent} & HELD_OUT


def test_the_tokenizer_gives_back_its_text_and_splits_numbers(pair):
    tokenizer = pair[1].tokenizer
    text = "def f(x):\n\treturn 1234 + 'é\u2028'"
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert len(tokenizer.encode("1234")) == 4
    ids = pair[1].ids([{"role": "user", "content": "a"}], "here")
    assert tokenizer.decode(ids) == "<|user|>a<|assistant|>"


def test_functions_are_cut_behind_their_docstrings(tmp_path):
    file = tmp_path / "m.py"
    lines = ["class A:", "    def f(self, x):", '        """Say x."""', "        y = x", "        return y"]
    file.write_text("\n".join([*lines, "", "    def g(self): pass", ""]))
    (found,) = functions(file)
    assert found == Document("stdlib", "m/f", 'def f(self, x):\n    """Say x."""\n', "    y = x\n    return y")


def test_windows_depend_on_seed_and_step_alone():
    kinds = {"gsm8k": [[1, 2, 3], [4, 5]], "source": [list(range(100, 150))]}
    windows = Windows(kinds, {"gsm8k": 0.5, "source": 0.5, "mbpp": 0.3}, window=8, seed=1)
    rows = windows.rows(3, 20)
    assert np.array_equal(rows, windows.rows(3, 20)) and not np.array_equal(rows, windows.rows(4, 20))
    assert {tuple(row[:2]) for row in rows if row[0] < 100} <= {(1, 2), (4, 5)}  # chat text from its beginning
    assert any(row[0] > 100 for row in rows)


def test_roots_lie_in_replies_and_labels_follow_them():
    recipe = replace(Recipe(), anchors=50)
    corpus = pl.DataFrame([([9, 8], [1, 2, 3, 4, 5], True), ([7], [1], True)], schema=SCHEMA, orient="row")
    roots = Roots(corpus, recipe, depth_max=3)
    ((ids, anchor, label),) = roots.batch(0, 1, 1)
    assert ids.tolist() == [[9, 8, 1, 2, 3, 4, 5]]  # the reply of one token teaches nothing
    assert set(anchor[0].tolist()) == {2, 3, 4, 5}
    after = {2: [2, 3, 4], 3: [3, 4, 5], 4: [4, 5, -100], 5: [5, -100, -100]}
    assert all(label[0, i].tolist() == after[a] for i, a in enumerate(anchor[0].tolist()))


def test_the_learning_rate_rises_and_falls():
    schedule = Schedule(steps=100, batch=1, micro=1, peak=1.0, floor=0.1, warmup=10)
    rates = [learning_rate(schedule, step) for step in range(101)]
    assert rates[0] == 0.1 and max(rates) == rates[9] == 1.0 and np.isclose(rates[100], 0.1)
    assert np.all(np.diff(rates[10:]) < 0)


def test_training_that_was_broken_off_ends_with_the_same_weights(tmp_path):
    plan = Schedule(steps=6, batch=4, micro=2, peak=0.1, floor=0.01, warmup=2)

    def trained(folder, *stops):
        model = torch.nn.Linear(3, 2)
        with torch.no_grad():
            model.weight.fill_(0.1)
            model.bias.fill_(0.0)

        def batch(step):
            if step in stops:
                raise KeyboardInterrupt
            return torch.from_numpy(np.random.default_rng(step).random((4, 3), np.float32)).split(2)

        fit(model, batch, lambda x: (model(x) ** 2 - 1).square().mean(), plan, folder)
        return model.weight

    whole = trained(tmp_path / "whole")
    import castsim.live.pair.training_loop as module

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "CHECKPOINT_SECONDS", 0.0)
        with pytest.raises(KeyboardInterrupt):
            trained(tmp_path / "broken", 3)
    assert torch.equal(trained(tmp_path / "broken"), whole)


def test_the_recipe_in_miniature_makes_a_pair_that_loads_and_resumes(tmp_path):
    from castsim.live.models.checkpoint import load_drafter
    from castsim.live.models.target import load_target
    from castsim.live.pair.train import run

    torch.set_num_threads(1)
    short = Schedule(steps=2, batch=2, micro=1, peak=1e-3, floor=1e-4)
    recipe = replace(
        Recipe(), vocab_size=320, hidden=32, intermediate=48, heads=2, kv_heads=1, head_dim=16, window=32,
        target=short, dflash=short, dart=short, answers=8, answers_batch=4, new_tokens=8, anchors=3, dart_vocab=8,
    )  # fmt: skip
    documents = [Document("gsm8k", f"g{i}", f"How many are {i} and {i}?", f"They are {2 * i}.") for i in range(9)]
    documents += [Document("source", "s", None, "def f(x):\n    return x\n" * 9)]
    for _ in range(2):  # the second time all is there
        run(recipe, documents, tmp_path)
    target = load_target(str(tmp_path / "product" / "target"), torch.float32, "cpu")
    for name, depth_max in (("dflash-b16", 15), ("dart", 8)):
        assert load_drafter(str(tmp_path / "product" / name), target).depth_max == depth_max
    stages = [json.loads(line)["stage"] for line in (tmp_path / "stages.jsonl").read_text().splitlines()]
    assert stages == 2 * ["tokenizer", "target", "corpus", "dflash", "dart"]


def test_record_without_models_named_records_the_pair(tmp_path, monkeypatch, capsys):
    """And the log proves itself: its walked chain is the chain decode of the same pair."""
    import sys

    import slow_decode

    from castsim.cli import app as cli
    from castsim.runs.reading import open_run
    from castsim.scoring.policies import Choice
    from castsim.scoring.tally import Plan, score
    from replay.policies.chain import Chain

    words = ["castsim", "record", "--limit", "2", "--max-new-tokens", "24", "--out", str(tmp_path / "run")]
    monkeypatch.setattr(sys, "argv", words)
    with pytest.raises(SystemExit) as stop:
        cli.main()
    assert not stop.value.code and "Replay it" in capsys.readouterr().out
    run = open_run(tmp_path / "run")
    assert (run.facts.target, run.facts.drafter) == ("pair", "pair-dflash")
    tally = score(run, Plan((Choice(Chain),), (15,), "walked"), None)
    drafter, _ = load_pair("pair", None, "float32", "cpu", raw=False, thinking=False)
    for row in run.sequences().iter_rows(named=True):
        output, committed = slow_decode.chain_rounds(drafter, row["prompt_tokens"], 24, set(run.facts.eos_ids))
        assert row["output_tokens"] == output
        assert (tally.committed[row["prompt"], 0], tally.rounds[row["prompt"], 0]) == (sum(committed), len(committed))


def test_loops_are_found_where_they_come_round_again():
    from castsim.live.pair.looping import loop_start

    assert loop_start([1, 2, 3] * 3) is None and loop_start(list(range(40))) is None
    assert loop_start([1] * 10) == 9  # the third run of eight ones ends at the tenth token
    assert loop_start([9, 9, *range(8), *range(8), *range(8)]) == 25


@pytest.mark.parametrize("script", ["train", "without_loops", "examples"])
def test_the_scripts_tell_bad_input_in_one_line(script, tmp_path):
    import subprocess
    import sys

    nowhere = str(tmp_path / "nowhere")
    given = {
        "train": ["--gsm8k", nowhere, "--mbpp", nowhere, "--work", str(tmp_path)],
        "without_loops": [nowhere],
        "examples": ["--gsm8k", nowhere, "--mbpp", nowhere, "--humaneval", nowhere],
    }[script]
    done = subprocess.run([sys.executable, "-m", f"castsim.live.pair.{script}", *given], capture_output=True, text=True)
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and nowhere in done.stderr, done.stderr
