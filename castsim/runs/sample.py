"""Where the sample run lies: in a wheel beside this file, in a checkout under logs/."""

from __future__ import annotations

from pathlib import Path

from castsim.base.errors import CastsimError


def sample_run() -> Path:
    """The folder of the recorded run that castsim carries.

    Raises:
        CastsimError: a damaged installation.
    """
    here = Path(__file__).parent
    for folder in (here / "_sample", here.parents[1] / "logs" / "sample"):
        if folder.is_dir():
            return folder
    raise CastsimError(
        f"{here}: the sample run is missing from this installation; install castsim again, or name a RUN"
    )
