"""castsim probe: what the clock of a bad machine does to it, what it times, and what it keeps."""

import json

import numpy as np
import pytest
from run_builders import document

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from castsim.costs.probefile import open_probe  # noqa: E402
from castsim.live import probe as run  # noqa: E402
from castsim.live.decode.shapes import Job, ProbeOptions, jobs, random_tree  # noqa: E402
from castsim.live.models.attention import windows_of  # noqa: E402
from castsim.live.models.load import load_for_probe  # noqa: E402
from replay.latency import LatencyCurve  # noqa: E402

PACKED = (1, 4, 8, 16, 24, 32, 48, 64, 96, 128)
CPU = torch.device("cpu")
QWEN = {
    "model_type": "qwen3",
    "architectures": ["Qwen3ForCausalLM"],
    "vocab_size": 80,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 16,
    "max_position_embeddings": 256,
}
NEXT = {
    **QWEN,
    "model_type": "qwen3_next",
    "architectures": ["Qwen3NextForCausalLM"],
    "num_hidden_layers": 4,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 2,
    "num_experts": 2,
    "num_experts_per_tok": 1,
    "moe_intermediate_size": 16,
    "shared_expert_intermediate_size": 16,
}
FEW = ("--packed", "1,16,32", "--iterations", "3", "--warmups", "1")


class Machine:
    """A clock that runs only while a job works; `cost` says how long call number `call` of a shape takes."""

    def __init__(self, cost):
        self.now, self.calls, self.cost = 0.0, {}, cost

    def clock(self):
        return self.now

    def jobs(self):
        return [Job((0, 0, n), lambda: None, lambda n=n: self.work(n)) for n in range(len(PACKED))]

    def work(self, n):
        total, own = sum(self.calls.values()), self.calls.get(n, 0)
        self.calls[n] = own + 1
        self.now += 1e-3 * self.cost(total, own)

    def slope(self, device=CPU):
        """ms a token that a probe of this machine finds."""
        passes = run.measured(self.jobs(), ProbeOptions(PACKED), device, lambda _: None, self.clock)
        assert len(passes) == 30
        assert set(self.calls.values()) == {38}
        medians = [float(np.median([found[0, 0, n] for found in passes])) for n in range(len(PACKED))]
        return LatencyCurve(np.array(PACKED), np.array(medians)).slope()


@pytest.mark.parametrize(
    "cost",
    [
        lambda total, own: 10 if own == 0 else 1,  # the first call of each shape
        lambda total, own: 1.01**total / 1.01**380,  # each call a little slower, ending at 1 ms
        lambda total, own: 5 if total in (100, 201, 333) else 1,  # outliers
    ],
)
def test_scenario_19_a_flat_model_has_no_slope_on_a_bad_machine(cost):
    assert abs(Machine(cost).slope()) < 1e-3


def test_scenario_19_a_device_is_waited_for_before_both_readings(monkeypatch):
    """Its work is done at the next synchronisation, which the interval must hold."""
    machine = Machine(lambda total, own: 1)
    queue = []
    machine_work = machine.work
    machine.work = queue.append

    def synchronize(device):
        while queue:
            machine_work(queue.pop(0))

    monkeypatch.setattr(torch.cuda, "synchronize", synchronize)
    passes = run.measured(machine.jobs(), ProbeOptions(PACKED), torch.device("cuda"), lambda _: None, machine.clock)
    assert {round(ms, 9) for found in passes for ms in found.values()} == {1.0}


def test_a_light_shape_is_not_slow_because_a_heavy_one_went_before():
    """A call behind one of another batch or prefix takes twice as long, as where caches and clocks must settle."""
    now, last = 0.0, None

    def work(cell):
        nonlocal now, last
        own = 1.0 + 9 * cell[1]
        now += 1e-3 * own * (1 if last in (None, cell[:2]) else 2)
        last = cell[:2]

    cells = [(p, b, n) for p in range(2) for b in range(3) for n in (*range(3), -1)]
    shapes = [Job(cell, lambda: None, lambda cell=cell: work(cell)) for cell in cells]
    options = ProbeOptions((1, 2, 3), (8, 64), (1, 2, 4))
    passes = run.measured(shapes, options, CPU, lambda _: None, lambda: now)
    assert [set(found) for found in passes] == [set(cells)] * options.iterations
    assert {(cell[1], round(ms, 6)) for found in passes for cell, ms in found.items()} == {(0, 1), (1, 10), (2, 19)}


def test_passes_go_there_and_back():
    seen = []
    shapes = [Job((0, 0, n), lambda: None, lambda n=n: seen.append(n)) for n in range(3)]
    run.measured(shapes, ProbeOptions((1, 2, 3), warmups=1, iterations=2), CPU, lambda _: None, lambda: 0.0)
    assert seen == [0, 1, 2, 2, 1, 0, 0, 1, 2]


def test_what_must_be_made_anew_is_made_outside_the_time():
    machine = Machine(lambda total, own: 1)

    def prepare():
        machine.now += 1.0

    shapes = [Job((0, 0, 0), prepare, lambda: machine.work(0))]
    (found,) = run.measured(shapes, ProbeOptions((16,), warmups=0, iterations=1), CPU, lambda _: None, machine.clock)
    assert found[0, 0, 0] == pytest.approx(1.0)


@pytest.mark.parametrize("stop", [2, 17, 31])
def test_a_probe_that_is_broken_off_keeps_its_finished_passes(stop):
    """Two warm-ups and up to eight passes of four shapes; the key is pressed in call number `stop`."""
    calls = []

    def work():
        calls.append(0)
        if len(calls) == stop:
            raise KeyboardInterrupt

    shapes = [Job((0, 0, n), lambda: None, work) for n in range(4)]
    options = ProbeOptions((1, 2, 3, 4), warmups=2, iterations=8)
    if stop < 3 * 4:
        with pytest.raises(KeyboardInterrupt):
            run.measured(shapes, options, CPU, lambda _: None, lambda: 0.0)
        return
    passes = run.measured(shapes, options, CPU, lambda _: None, lambda: 0.0)
    assert len(passes) == (stop - 1) // 4 - 2
    assert all(len(found) == 4 for found in passes)


def test_a_broken_off_probe_is_written_and_says_so(castsim, tmp_path, monkeypatch):
    whole = run.measured

    def pressed(shapes, options, device, done, clock):
        return whole(shapes, options, device, done, clock)[:2]

    monkeypatch.setattr(run, "measured", pressed)
    code, out, _ = castsim("probe", "--out", tmp_path / "p.json", *FEW)
    assert code == 0
    assert "Broken off after 2 of 3 passes" in out
    assert open_probe(str(tmp_path / "p.json")).curve().samples_ms.shape == (1, 1, 3, 2)


@pytest.fixture
def config(tmp_path):
    def written(found):
        (tmp_path / "config.json").write_text(json.dumps(found))
        return tmp_path / "config.json"

    return written


def test_the_embedded_pair_is_probed_and_answers(castsim, tmp_path):
    """The probe's curve drives width and forecast."""
    file = tmp_path / "probe.json"
    assert castsim("probe", "--out", file, "--prefix", "64", *FEW)[0] == 0
    found = open_probe(str(file))
    assert (found.prefix, found.packed, found.plain) == ([64], [1, 16, 32], False)
    assert (found.target, found.drafter, found.dtype, found.attention) == ("pair", "pair-dflash", "float32", "sdpa")
    assert found.draft_ms[0][0] > 0
    assert len(document(castsim, "width", "--probe", file, "--budgets", "15,31")["widths"]) == 6
    assert len(document(castsim, "forecast", "--probe", file, "--budgets", "15,31")["results"]) == 4


def test_random_weights_of_a_qwen3_config(castsim, tmp_path, config):
    file = tmp_path / "probe.json"
    arguments = ("--random-weights", "--config", config(QWEN), "--prefix", "8,32", "--batch", "1,3")
    assert castsim("probe", "--out", file, *arguments, *FEW)[0] == 0
    curve = open_probe(str(file)).curve()
    assert curve.samples_ms.shape == (2, 2, 3, 3)
    assert np.isnan(curve.draft_ms).all()
    found = document(castsim, "width", "--probe", file, "--draft-ms", "1", "--budgets", "15,31", "--batch", "3")
    assert [row["batch"] for row in found["by_batch"]] == [1, 3]
    assert [row["prefix"] for row in found["by_prefix"]] == [8, 32]
    held = ("--assume", "hold", "--budgets", "15")  # the sample's contexts are longer
    assert len(document(castsim, "forecast", "--probe", file, "--draft-ms", "1", *held)["results"]) == 3


def test_a_random_head_for_a_random_target(castsim, tmp_path, config):
    head = tmp_path / "head" / "config.json"
    head.parent.mkdir()
    own = {"block_size": 4, "dflash_config": {"mask_token_id": 79, "target_layer_ids": [0]}, "num_target_layers": 2}
    head.write_text(json.dumps({**QWEN, **own}))
    arguments = (
        "--random-weights",
        "--config",
        config(QWEN),
        "--drafter-config",
        head,
        "--prefix",
        "8",
        "--batch",
        "1,2",
    )
    assert castsim("probe", "--out", tmp_path / "p.json", *arguments, *FEW)[0] == 0
    assert (open_probe(str(tmp_path / "p.json")).curve().draft_ms > 0).all()


def test_a_hybrid_target_is_timed_plainly_from_copies_of_its_state(castsim, tmp_path, config):
    """Recurrent layers change their state in place; the copy keeps every pass at the same prefix (D.1)."""
    file = tmp_path / "probe.json"
    assert castsim("probe", "--out", file, "--random-weights", "--config", config(NEXT), "--prefix", "8", *FEW)[0] == 0
    found = open_probe(str(file))
    assert found.plain
    assert any("linear_attention" in note for note in found.notes)
    target, _ = load_for_probe("", None, config(NEXT), None, "float32", "cpu", 0)
    with torch.inference_mode():
        shape = next(j for j in jobs(target, None, ProbeOptions((16,), (8,)), None) if j.cell == (0, 0, 0))
        rows = []
        for _ in range(2):
            shape.prepare()
            rows.append(shape.run().logits)
    assert torch.equal(*rows)


def test_the_tree_pass_is_the_decoders_and_leaves_the_prefix_alone(config):
    """Timed twice, a shape reads the same rows behind the same prefix."""
    target, _ = load_for_probe("", None, config(QWEN), None, "float32", "cpu", 0)
    windows = windows_of(target.model, target.name)
    with torch.inference_mode():
        (shape,) = jobs(target, None, ProbeOptions((16,), (8,)), windows)
        first, second = shape.run()[0], shape.run()[0]
    assert first.shape == (1, 16, 80)
    assert torch.equal(first, second)


@pytest.mark.parametrize("packed", [1, 2, 16, 128])
def test_random_trees_have_the_asked_size(packed):
    tree = random_tree(packed, 3)
    assert len(tree) == packed
    assert (tree.parent[1:] < np.arange(1, packed)).all()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--packed", "16,8"], "give rising numbers"),
        (["--packed", "16,16"], "16 is there twice"),
        (["--packed", "0,16"], "give rising numbers"),
        (["--packed", "many"], "whole numbers"),
        (["--batch", "0"], "give rising numbers"),
        (["--prefix", "100000"], "beyond the 1024 positions"),
        (["--random-weights"], "goes with --config"),
        (["--config", "nothing.json"], "goes with --config"),
        (["--random-weights", "--config", "nothing.json"], "nothing.json: is no file"),
        (["--device", "cuda:99"], "--device cuda:99"),
        (["--iterations", "0"], "--iterations"),
        (["--target", "no/such"], "no/such"),
        (["--out", "no/such/folder/p.json"], "cannot be written"),
    ],
)
def test_bad_input_is_one_line(castsim, tmp_path, monkeypatch, arguments, said):
    monkeypatch.chdir(tmp_path)
    code, out, err = castsim("probe", *arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert said in err
    assert not list(tmp_path.iterdir())


def test_a_config_that_is_no_model_is_refused(castsim, tmp_path, config):
    code, _, err = castsim(
        "probe", "--random-weights", "--config", config({"model_type": "soup"}), "--out", tmp_path / "p"
    )
    assert (code, err.count("\n")) == (2, 1)
    assert "describes no causal model" in err


def test_a_probe_is_not_written_over(castsim, tmp_path):
    file = tmp_path / "p.json"
    file.write_text("mine")
    code, _, err = castsim("probe", "--out", file)
    assert code == 2
    assert "is there already" in err
    assert file.read_text() == "mine"
