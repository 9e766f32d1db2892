"""One Hypothesis profile for all tests, and the runs that tests share."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from castsim.runlog import open_run
from castsim.sample import sample_run

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
