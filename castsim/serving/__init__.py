"""Requests under load, simulated on the rounds of a run. It takes arrivals, a controller that shares the verifier,
and costs of a batch, and gives goodput and waits. A new controller is one file in controllers/.
"""

from castsim.serving.requests import Requests, requests_of
from castsim.serving.server import Server
from castsim.serving.trace import Trace, read_trace

__all__ = ["Requests", "Server", "Trace", "read_trace", "requests_of"]
