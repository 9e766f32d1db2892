"""What a pass costs on one machine. It reads probes, measured or published, and gives the time of a round for any
number of packed tokens, at a context and a batch size, and says where the probe does not reach.
"""

from castsim.costs.batch import batch_cost
from castsim.costs.context import Context
from castsim.costs.curve import Cost
from castsim.costs.match import Deployment, differences
from castsim.costs.probefile import Probe, open_probe, presets

__all__ = ["Context", "Cost", "Deployment", "Probe", "batch_cost", "differences", "open_probe", "presets"]
