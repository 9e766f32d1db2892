"""Every castsim command that the README and the help show runs as it stands, beside the files that it names."""

import json
import os
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import run_builders as runs

from castsim.cli import app as cli
from castsim.costs.probefile import OWN
from castsim.runs.sample import sample_run

ROOT = Path(__file__).parents[1]
PROFILE = ROOT / "castsim" / "profiles" / "shipped" / "qwen3-8b-mbpp.json"
TORCH = re.compile(r"castsim (record|live|generate|check|probe)\b")
NOT_RUN = {  # what stands in a command, and why no test runs it
    "Qwen/": "fetches models of several GB",
    "gemma3-270m": "takes a head of the user's own",
    "fit-profile RUN --out": "takes minutes; a rough fit is run in its place",
    "fit-profile --published": "takes three quarters of an hour",
    "pip install": "is a step of .ci/run",
}
CONFIG = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "vocab_size": 96,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 512,
}


def readme_commands():
    """Lines of its bash blocks, and commands in its sentences that say more than a verb."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    blocks = "".join(re.findall(r"```bash\n(.*?)```", text, flags=re.S)).splitlines()
    spans = (" ".join(span.split()) for span in re.findall(r"`([^`]+)`", re.sub(r"```.*?```", "", text, flags=re.S)))
    return [*(re.sub(r"\s+#.*", "", line) for line in blocks), *(s for s in spans if re.match(r"castsim \S+ \S", s))]


def help_commands():
    """The examples of every verb, which are lines of its docstring."""
    documents = [command.callback.__doc__ for command in cli.build().registered_commands]
    return [line.strip() for text in documents for line in text.splitlines() if line.strip().startswith("castsim ")]


COMMANDS = list(dict.fromkeys([*readme_commands(), *help_commands()]))
RUN = [command for command in COMMANDS if not any(part in command for part in NOT_RUN)]


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """PATH with this castsim in front."""
    folder = tmp_path_factory.mktemp("bin")
    (folder / "castsim").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m castsim "$@"\n')
    (folder / "castsim").chmod(0o755)
    return f"{folder}{os.pathsep}{os.environ['PATH']}"


def a_log():
    """Prompts and outputs as dicts, and the rounds of them."""
    frame, rounds = runs.prompts([9, 5, 12, 2])
    return frame.drop("prompt", "finish").to_dicts(), rounds


def put_npz(file):
    sequences, rounds = a_log()
    root = [sequences[i]["output_tokens"][p] for i, p in zip(rounds.prompt, rounds.position, strict=True)]
    arrays = {"prompt": rounds.prompt, "position": rounds.position, "root": np.array(root, np.int32)}
    np.savez(file, **arrays, token=rounds.marginals.token, logq=rounds.marginals.logq)
    file.with_name("tiny_sequences.json").write_text(json.dumps(sequences))


def put_jsonl(file):
    sequences, rounds = a_log()
    columns = {
        "position": rounds.position,
        "token": rounds.marginals.token,
        "logq": rounds.marginals.logq.astype(float),
    }
    lines = []
    for i, sequence in enumerate(sequences):
        entries = [{k: v[r].tolist() for k, v in columns.items()} for r in np.flatnonzero(rounds.prompt == i)]
        lines.append(json.dumps({**sequence, "rounds": entries}) + "\n")
    file.write_text("".join(lines))


INPUTS = {  # a name that stands in commands, and how it comes to be there
    "RUN": lambda file: file.symlink_to(sample_run()),
    "probe.json": lambda file: shutil.copy(OWN["pair-cpu"], file),
    "my-profile.json": lambda file: shutil.copy(PROFILE, file),
    "config.json": lambda file: file.write_text(json.dumps(CONFIG)),
    "azure.csv": lambda file: file.write_text(
        "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.68,374,44\n"
    ),
    "log.jsonl": put_jsonl,
    "tiny_dense.npz": put_npz,
}


def runs_as_it_stands(command, folder, path):
    for name, put in INPUTS.items():
        if name in command.split() and f"--out {name}" not in command:
            put(folder / name)
    env = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(["bash", "-ec", command], cwd=folder, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout
    for made in re.findall(r"--(?:out|json|csv|plot) ([^\s-]\S*)", command):
        assert (folder / made).exists()


@pytest.mark.parametrize("command", [c for c in RUN if not TORCH.search(c)])
def test_a_command_runs_as_it_stands(command, tmp_path, path):
    runs_as_it_stands(command, tmp_path, path)


@pytest.mark.skipif(not all(map(find_spec, ("torch", "transformers"))), reason="needs the extra live")
@pytest.mark.parametrize("command", [c for c in RUN if TORCH.search(c)])
def test_a_command_that_needs_torch_runs_as_it_stands(command, tmp_path, path):
    runs_as_it_stands(command, tmp_path, path)


def test_every_verb_and_every_reason_is_met():
    verbs = {command.name or command.callback.__name__ for command in cli.build().registered_commands}
    assert verbs == {verb for command in RUN for verb in re.findall(r"castsim ([a-z-]+)", command)}
    assert all(any(part in command for command in COMMANDS) for part in NOT_RUN)


@pytest.mark.parametrize("page", ["README.md", "logs/README.md", "CHANGELOG.md", "castsim", "replay"])
def test_nothing_says_to_install_castsim_from_an_index(page):
    """It is on none: an extra comes from the source folder or a wheel."""
    place = ROOT / page
    files = [place] if place.is_file() else list(place.rglob("*.py"))
    assert not [f for f in files if re.search(r"castsim\[\w", f.read_text(encoding="utf-8"))]
