"""Sweeps on a Dask cluster: the same results, also where a worker dies in the middle."""

import contextlib
import os
import signal
import socket
import time
from functools import partial
from pathlib import Path

import pytest
import run_builders as runs
from run_builders import document

from castsim.base.errors import OptionError, WorkerError
from castsim.base.workers import HERE, Workers, workers_of
from castsim.profiles.simulate import simulated_part
from castsim.runs import reading as runlog

# port 0 is any that is free: of the scheduler and of its dashboard, which takes 8787 where none is named
QUIET = {"threads_per_worker": 1, "scheduler_port": 0, "dashboard_address": ":0", "silence_logs": 50}


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
    with distributed.LocalCluster(**QUIET, n_workers=2) as two:
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


class Handed(list):
    """Items that note how many of them were handed out."""

    count = 0

    def __iter__(self):
        for item in super().__iter__():
            self.count += 1
            yield item


def wait_for(mark: Path | None) -> None:
    """Return once a file is there."""
    while mark is not None and not mark.exists():
        time.sleep(0.01)


def test_a_process_holds_its_next_part_while_it_works_at_one(tmp_path):
    """Else both wait after each part, until the parent has had its turn."""
    mark = tmp_path / "go on"
    items = Handed([None, *[mark] * 11])  # all but the first wait, so that the count cannot run ahead
    results = Workers(2).each(wait_for, items)
    next(results)
    held = items.count
    mark.touch()
    assert len(list(results)) == 11
    assert 5 <= held <= 8  # two for each process and at most as many in line; not all


def test_the_parent_reads_names_only_and_sends_little(castsim, tmp_path, monkeypatch):
    """Of a replay by two processes: rounds and tokens are read by those, from a task that names the shard."""
    cloudpickle = pytest.importorskip("cloudpickle")
    folder = runs.write(tmp_path / "run", [runs.prompts([20, 30, 15], first=3 * n) for n in range(3)])
    read, sent, reader, each = [], [], runlog._read, Workers.each

    def noted_read(folder, entry, schema, prompts):
        read.append(set(schema))
        return reader(folder, entry, schema, prompts)

    def noted_each(self, work, items):
        sent.extend(len(cloudpickle.dumps((work, item))) for item in items)
        return each(self, work, items)

    monkeypatch.setattr(runlog, "_read", noted_read)
    monkeypatch.setattr(Workers, "each", noted_each)
    document(castsim, "replay", folder, "--budgets", "5", "--jobs", "2")
    assert len(sent) == 3 and max(sent) < 10_000  # bytes
    assert read == [{"prompt", "prompt_id", "domain"}] * 3


def killed(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)


# by verb: what a worker does of it, which is where the process is killed
VERBS = {
    "replay": (("replay", "RUN", "--budgets", "5", "--json", "OUT"), "castsim.scoring.tally._tally"),
    "allocate": (
        ("allocate", "RUN", "--batch", "4", "--batches", "4", "--json", "OUT"),
        "castsim.scoring.allocate._whole",
    ),
    "serve": (
        ("serve", "RUN", "--requests", "6", "--concurrency", "1,2", "--json", "OUT"),
        "castsim.serving.serve._row",
    ),
    "simulate": (("simulate", "--rounds", "40000", "--out", "OUT"), "castsim.profiles.simulate.simulated_part"),
    "fit-profile": (
        ("fit-profile", "--published", "all", "--out", "OUT"),
        "castsim.profiles.fit_profile.of_published",
    ),
}


@pytest.mark.parametrize("verb", VERBS)
def test_a_killed_process_is_one_line_and_exit_code_1(castsim, tmp_path, monkeypatch, verb):
    """Under every verb that has --jobs; nothing is left half-written."""
    words, at = VERBS[verb]
    folder = runs.write(tmp_path / "run", [runs.prompts([20, 30, 15], first=3 * n) for n in range(3)])
    before = set(tmp_path.rglob("*"))
    monkeypatch.setattr(at, killed)
    places = {"RUN": folder, "OUT": tmp_path / "out"}
    code, out, err = castsim(*(places.get(word, word) for word in words), "--jobs", "2")
    assert (code, out, err.count("\n")) == (1, "", 1), err
    assert "a worker process was killed" in err and "after 0 of" in err
    assert set(tmp_path.rglob("*")) == before


def test_a_simulation_that_lost_a_process_says_what_is_kept_and_goes_on_from_there(castsim, tmp_path, monkeypatch):
    words = ("simulate", "--rounds", "60000", "--depth-max", "2", "--rank-kept", "2", "--tokens", "6000")  # ten parts
    assert castsim(*words, "--out", tmp_path / "at-once")[0] == 0
    out, parts = tmp_path / "out", tmp_path / "out.parts"
    with monkeypatch.context() as patch:
        patch.setattr("castsim.profiles.simulate.simulated_part", partial(die_at_last, parts, simulated_part))
        code, printed, err = castsim(*words, "--out", out, "--jobs", "2")
    kept = len(list(parts.glob("*/sequences-*.parquet")))
    assert (code, printed, err.count("\n")) == (1, "", 1) and kept >= 2, err
    assert err.endswith(f"repeat the command: {kept} of 10 parts are kept in {parts}\n")
    assert castsim(*words, "--out", out, "--jobs", "2")[0] == 0
    assert sorted(file.name for file in tmp_path.iterdir()) == ["at-once", "out"]
    files = [file.name for file in (tmp_path / "at-once").glob("*.parquet")]
    assert len(files) == 20
    assert all((out / name).read_bytes() == (tmp_path / "at-once" / name).read_bytes() for name in files)


def die_at_last(parts, real, model, shape, first):
    """A part of a simulation; the process that gets the last one is killed once two are written."""
    while first == shape.prompts - 1:
        if len(list(parts.glob("*/sequences-*.parquet"))) >= 2:
            killed()
        time.sleep(0.01)
    return real(model, shape, first)


def test_what_was_done_before_a_kill_stays(tmp_path):
    """As profiles that are fitted do: each is written when it comes."""
    got = []
    with pytest.raises(WorkerError, match=r"after \d of 12 parts"):
        for value in Workers(2).each(die_late, [(n, tmp_path) for n in range(12)]):
            got.append(value)
            (tmp_path / str(len(got))).touch()
    assert got == [n**2 for n in range(len(got))] and len(got) >= 3


def die_late(item: tuple[int, Path]) -> int:
    """The square of a number; 8 waits until three results have come, and then its process is killed."""
    number, folder = item
    if number == 8:
        while not (folder / "3").exists():
            time.sleep(0.01)
        killed()
    return number**2


@pytest.fixture
def impatient(monkeypatch):
    """A second is enough to see that a cluster has no workers."""
    pytest.importorskip("distributed")
    monkeypatch.setattr("castsim.base.workers.CONNECT_S", 1)
    monkeypatch.setattr("castsim.base.workers.LOOK_S", 1)


def test_a_cluster_without_workers_is_one_line(castsim, impatient):
    import distributed

    with distributed.LocalCluster(**QUIET, n_workers=0) as none:
        for ask in (("replay",), ("allocate",), ("serve",)):
            code, out, err = castsim(*ask, "--backend", "dask", "--scheduler", none.scheduler_address)
            assert (code, out, err.count("\n")) == (1, "", 1)
            assert "has no workers; start some with dask worker" in err


def square_or_wait(number: int) -> int:
    """The square of a number; 2 and those above it take a minute."""
    time.sleep(0 if number < 2 else 60)
    return number**2


@pytest.mark.parametrize(
    ("lose", "said"),
    [
        (lambda cluster: cluster.scale(0), "its last worker has gone, after 2 of 8 parts"),
        (lambda cluster: cluster.close(), "the scheduler has gone, after 2 of 8 parts"),
    ],
)
def test_a_cluster_that_goes_in_the_middle_is_said(impatient, lose, said):
    """It would be waited for for ever, or be told as a file that cannot be written."""
    import distributed

    with distributed.LocalCluster(**QUIET, n_workers=1) as cluster:
        results = Workers(scheduler=cluster.scheduler_address).each(square_or_wait, range(8))
        assert [next(results), next(results)] == [0, 1]
        lose(cluster)
        with pytest.raises(WorkerError, match=said):
            next(results)


def test_a_part_that_kills_every_worker_is_said(impatient):
    import dask
    import distributed

    with dask.config.set({"distributed.scheduler.allowed-failures": 0}):
        cluster = distributed.LocalCluster(**QUIET, n_workers=1)
    with cluster, pytest.raises(WorkerError, match=r"died at one part again and again.*after 0 of 2 parts"):
        list(Workers(scheduler=cluster.scheduler_address).each(killed, range(2)))


def late(_: object) -> None:
    raise TimeoutError("the part's own")


def test_what_a_part_itself_raises_on_a_cluster_comes_as_it_is(cluster):
    """Also where it looks like a cluster that does not answer."""
    with pytest.raises(TimeoutError, match="the part's own"):
        list(Workers(scheduler=cluster).each(late, range(2)))


@pytest.fixture
def usual_ports():
    """The ports of a Dask scheduler and its dashboard, held where they are free."""
    held = []
    for port in (8786, 8787):
        held.append(socket.socket())
        with contextlib.suppress(OSError):
            held[-1].bind(("127.0.0.1", port))
            held[-1].listen()
    yield
    for one in held:
        one.close()


def test_a_cluster_works_where_the_usual_ports_are_taken(usual_ports, castsim):
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(**QUIET, n_workers=1) as one:
        assert list(Workers(scheduler=one.scheduler_address).each(abs, [-3, 2])) == [3, 2]


@pytest.mark.parametrize(
    ("backend", "scheduler", "said"),
    [("dask", None, "belong together"), ("local", "tcp://a:1", "belong together"), ("spark", None, "--backend spark")],
)
def test_options_that_do_not_fit_are_refused(backend, scheduler, said):
    with pytest.raises(OptionError, match=said):
        workers_of(1, backend, scheduler)


def test_a_scheduler_that_does_not_answer_is_one_line(castsim, monkeypatch):
    pytest.importorskip("distributed")
    monkeypatch.setattr("castsim.base.workers.CONNECT_S", 1)
    code, out, err = castsim("allocate", "--backend", "dask", "--scheduler", "tcp://127.0.0.1:1")
    assert (code, out, err.count("\n")) == (2, "", 1) and "no Dask scheduler answers" in err
