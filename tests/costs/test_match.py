"""Run and probe of one deployment, or a warning that names what differs; --strict refuses."""

import shutil

import pytest
from run_builders import document, reseal

from castsim.costs.match import Deployment, differences, kind_of
from castsim.runs.manifest import read_manifest

SERVED = ("--policy", "chain", "--requests", "2", "--concurrency", "1")
OWN = Deployment("Qwen/Qwen3-8B", "z-lab/Qwen3-8B-DFlash-b16", "dflash", 16, "bfloat16", "cuda")


@pytest.fixture
def dart_run(tmp_path, sample):
    """The sample, as if a DART head had drafted it."""
    return renamed(tmp_path / "run", sample, drafter="pair-dart")


def renamed(folder, sample, **facts):
    shutil.copytree(sample, folder)
    reseal(folder, facts={**read_manifest(folder).facts.model_dump(), **facts})
    return folder


@pytest.mark.parametrize(
    ("probe", "fields"),
    [
        (OWN, []),
        (Deployment(), []),  # what is not known does not differ
        (Deployment("/models/qwen3-8b", dtype="torch.bfloat16", device="NVIDIA H100 80GB HBM3"), []),
        (Deployment("Qwen/Qwen3-4B"), ["target"]),
        (Deployment(kind="dart"), ["drafter kind"]),
        (Deployment(block=8), ["block size"]),
        (Deployment(dtype="fp16"), ["dtype"]),
        (Deployment(device="Intel(R) Xeon(R), 2 threads"), ["device"]),
        (
            Deployment("b", "c", "dart", 8, "float32", "cpu"),
            ["target", "drafter kind", "block size", "dtype", "device"],
        ),
    ],
)
def test_what_both_know_and_do_not_agree_on(probe, fields):
    assert [d["field"] for d in differences(OWN, probe)] == fields


def test_names_of_one_gpu_are_one():
    def of(run, probe):
        return differences(Deployment(device=run), Deployment(device=probe))

    assert not of("NVIDIA H100 80GB HBM3", "H100")
    assert not of("cuda:1", "NVIDIA A100-SXM4-80GB")
    assert of("NVIDIA H100 80GB HBM3", "NVIDIA L40S")
    assert of("cuda", "cpu")


def test_a_heads_name_tells_its_kind():
    assert kind_of("z-lab/Qwen3-8B-DFlash-b16") == "dflash"
    assert kind_of("pair-dart") == "dart"
    assert kind_of("yuhuili/EAGLE3-LLaMA3.1-Instruct-8B") == "eagle3"
    assert kind_of("a/b") is None


@pytest.mark.parametrize(
    "asked",
    [
        ("width", "--probe", "blackwell-qwen3-8b"),
        ("forecast", "--probe", "blackwell-qwen3-8b", "--prefix", "1024"),
        ("replay", "--policy", "costaware", "--probe", "blackwell-qwen3-8b"),
        ("serve", "--probe", "blackwell-qwen3-8b", "--assume", "total", "--assume", "hold", *SERVED),
        ("serve", *SERVED),  # the published costs are of that model, too
    ],
    ids=lambda asked: asked[0],
)
def test_a_probe_of_another_model_is_one_warning_a_field_and_refused_by_strict(castsim, asked):
    asked = asked if asked[0] == "serve" else (*asked, "--budgets", "15,31")
    found = document(castsim, *asked)
    assert [d["field"] for d in found["mismatch"]] == ["target", "dtype", "device"]
    (warning,) = [line for line in found["caveats"] if line.startswith("Warning: run and probe differ")]
    assert "target pair and qwen3-8b" in warning
    code, out, err = castsim(*asked, "--strict")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "--strict: run and probe differ in target pair and qwen3-8b" in err


def test_the_runs_own_probe_passes_strict(castsim):
    assert document(castsim, "width", "--strict", "--budgets", "15")["mismatch"] == []
    served = document(castsim, "serve", "--strict", "--probe", "pair-cpu-batches", *SERVED)
    assert served["mismatch"] == []


@pytest.mark.parametrize("engine", ["vllm", "sglang", "lucebox"])
def test_a_dart_run_is_not_emitted_as_dflash(castsim, dart_run, engine):
    code, out, err = castsim("width", "--masses", dart_run, "--budgets", "7,15", "--emit", engine, "--force")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert f"--emit {engine}: the drafter pair-dart is a DART head" in err
    found = document(castsim, "width", "--masses", dart_run, "--budgets", "7,15", "--emit", "json")
    assert found["acceptance"]["kind"] == "dart"
    assert [d["field"] for d in found["mismatch"]] == ["drafter kind"]


def test_what_is_emitted_is_the_runs_own_pair(castsim, tmp_path, sample):
    """The probe's names stand only where the run has none."""
    run = renamed(tmp_path / "run", sample, target="a/Target", drafter="a/Target-DFlash-b16")
    code, out, err = castsim("width", "--masses", run, "--budgets", "7,15", "--emit", "vllm", "--force")
    assert code == 0
    assert "vllm serve a/Target " in out and "a/Target-DFlash-b16" in out
    assert "Warning: run and probe differ in target target and pair" in " ".join(err.split())
