"""Whether a tree pays, and how wide. It takes what a policy commits and what a pass costs, and gives widths by each
rule, forecasts, a verdict beside decoding without a drafter, and the configuration of an inference engine.
"""

from castsim.advice.acceptance import Acceptance
from castsim.advice.engines import Configuration, configuration
from castsim.advice.forecast import RoundCost, Timed
from castsim.advice.pricing import Pricing

__all__ = ["Acceptance", "Configuration", "Pricing", "RoundCost", "Timed", "configuration"]
