"""How many tokens a policy commits on a run. It takes a run and policies with their budgets, tallies them shard by
shard, and gives R with intervals, the drafter's calibration, and what sharing one budget among requests is worth.
"""

from castsim.scoring.allocate import Experiment, allocation
from castsim.scoring.calibrate import Diagnosis, diagnose
from castsim.scoring.policies import Choice, choose
from castsim.scoring.replay import results
from castsim.scoring.tally import Tally, score

__all__ = ["Choice", "Diagnosis", "Experiment", "Tally", "allocation", "choose", "diagnose", "results", "score"]
