"""castsim: which candidates of a one-pass drafter to verify, and how many, answered offline. The kernel is `replay`."""

from importlib.metadata import version

__version__ = version("castsim")
