"""Rounds without a GPU. A profile is a model's parameters, fitted to a run or to published figures, with the error of
each. This room fits profiles, draws runs from them in the schema of recorded ones, and says how close they come.
"""

from castsim.profiles.model import Model, draw
from castsim.profiles.profile import Profile, open_profile, profile_names
from castsim.profiles.simulate import simulate_run

__all__ = ["Model", "Profile", "draw", "open_profile", "profile_names", "simulate_run"]
