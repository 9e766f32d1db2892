"""One Hypothesis profile for all tests, and the runs that tests share."""

import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from castsim.cli import app as cli
from castsim.runs.reading import open_run
from castsim.runs.sample import sample_run

settings.register_profile("castsim", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("castsim")


@pytest.fixture(scope="session")
def sample() -> Path:
    return sample_run()


@pytest.fixture(scope="session")
def sample_rounds(sample):
    """The sample run's rounds, all in one batch (it has one shard)."""
    (rounds,) = open_run(sample).rounds()
    return rounds


@pytest.fixture(scope="session")
def pairs(tmp_path_factory):
    """Folders of tiny random pairs, (target, head) by the drafter's kind."""
    import tiny
    import torch

    torch.set_num_threads(1)  # two beside another busy process can be ten times as slow
    folder = tmp_path_factory.mktemp("pairs")
    return {"dflash": tiny.saved_pair(folder / "dflash"), "dart": tiny.saved_pair(folder / "dart", tiny.DART)}


@pytest.fixture
def castsim(monkeypatch, capsys):
    """Run the command line in this process; gives exit code, stdout and stderr."""

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["castsim", *map(str, arguments)])
        with pytest.raises(SystemExit) as left:
            cli.main()
        out = capsys.readouterr()
        return left.value.code or 0, out.out, out.err

    return run
