# Short names for what .ci/run and the README do, in an existing .venv.
.PHONY: test lint bench figures

test:
	.venv/bin/pytest

lint:
	.venv/bin/ruff check . && .venv/bin/ruff format --check . && .venv/bin/mypy

bench:
	.venv/bin/pytest tests/bench/bench_kernel.py -s
	.venv/bin/python tests/bench/million.py

figures:
	.venv/bin/castsim calibrate --plot figures/out/calibration.png
