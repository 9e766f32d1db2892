"""10,000 requests of 256 tokens at 32 in flight, and what planning costs beside the plainest controller.

pytest tests/bench/bench_serve.py -s
"""

from time import perf_counter

import numpy as np

from castsim.costs.batch import batch_cost
from castsim.profiles.profile import open_profile
from castsim.profiles.simulate import Shape, simulate_run
from castsim.runs.reading import open_run
from castsim.serving.controllers import load_controllers
from castsim.serving.requests import requests_of
from castsim.serving.server import Server, serve

REQUESTS, TOKENS = 10_000, 256


def test_controllers(tmp_path):
    simulate_run(open_profile("qwen3-8b-gsm8k").model(), Shape(100, TOKENS, seed=1), tmp_path / "run", "bench")
    requests, taken = requests_of(open_run(tmp_path / "run"), None, REQUESTS, 0), {}
    for name, kind in load_controllers().items():
        began = perf_counter()
        served = serve(requests, np.zeros(REQUESTS), kind(), batch_cost("published"), Server(32))
        taken[name] = perf_counter() - began
        assert served.tokens.sum() == REQUESTS * TOKENS
    for name, seconds in taken.items():
        print(f"{name:10} {seconds:5.1f} s, {seconds / taken['chain']:.2f} of chain's")
