# Short names for what .ci/run and the README do, in an existing .venv.
.PHONY: test lint bench figures profiles

test:
	.venv/bin/pytest

lint:
	.venv/bin/ruff check . && .venv/bin/ruff format --check . && .venv/bin/mypy

bench:
	.venv/bin/pytest tests/bench/bench_kernel.py -s
	.venv/bin/python tests/bench/million.py

figures:
	.venv/bin/castsim figures --out figures/out
	.venv/bin/castsim calibrate --plot figures/out/calibration.png
	.venv/bin/python figures/execute.py

profiles: # three quarters of an hour on two cores
	.venv/bin/castsim fit-profile --published all --jobs 2 --steps 14 --rows 24576 --out castsim/profiles/shipped
