"""Sweeps on a Dask cluster: the same results, also where a worker dies in the middle."""

import os
import signal
from pathlib import Path

import pytest
import runs
from runs import document

from castsim.errors import OptionError
from castsim.workers import HERE, Workers, workers_of


def die_once(item: tuple[int, Path]) -> int:
    """The square of a number; the process that gets 3 first is killed at its work."""
    number, mark = item
    if number == 3 and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return number**2


@pytest.mark.parametrize("workers", [HERE, Workers(2)])
def test_results_come_in_order(workers):
    assert list(workers.each(lambda n: n**2, range(10))) == [n**2 for n in range(10)]


@pytest.fixture(scope="module")
def cluster():
    distributed = pytest.importorskip("distributed")
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None}
    with distributed.LocalCluster(**options, silence_logs=50) as two:
        yield two.scheduler_address


def test_a_cluster_gives_the_same_results(cluster, castsim, tmp_path):
    shards = [runs.prompts([20, 30, 15], first=3 * n) for n in range(3)]
    folder = runs.write(tmp_path / "run", shards)
    on = ("--backend", "dask", "--scheduler", cluster)
    for ask in (
        ("replay", folder, "--budgets", "5"),
        ("allocate", folder, "--batch", "4", "--batches", "10", "--per-request", "2"),
        ("serve", folder, "--requests", "6", "--concurrency", "1,2"),
    ):
        assert document(castsim, *ask, *on)["results"] == document(castsim, *ask)["results"]


def test_a_worker_killed_in_the_middle_costs_no_result(cluster, tmp_path):
    mark = tmp_path / "killed"
    items = [(n, mark) for n in range(12)]
    assert list(Workers(scheduler=cluster).each(die_once, items)) == [n**2 for n in range(12)]
    assert mark.exists()


@pytest.mark.parametrize(
    ("backend", "scheduler", "said"),
    [("dask", None, "belong together"), ("local", "tcp://a:1", "belong together"), ("spark", None, "--backend spark")],
)
def test_options_that_do_not_fit_are_refused(backend, scheduler, said):
    with pytest.raises(OptionError, match=said):
        workers_of(1, backend, scheduler)


def test_a_scheduler_that_does_not_answer_is_one_line(castsim, monkeypatch):
    pytest.importorskip("distributed")
    monkeypatch.setattr("castsim.workers.CONNECT_S", 1)
    code, out, err = castsim("allocate", "--backend", "dask", "--scheduler", "tcp://127.0.0.1:1")
    assert (code, out, err.count("\n")) == (2, "", 1) and "no Dask scheduler answers" in err
