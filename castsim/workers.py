"""Where the parts of a sweep run: in this process, in several, or on a Dask cluster that is already there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from typing import Any, TypeVar

from castsim.errors import OptionError, WorkerError, first_line
from castsim.extras import install

Item = TypeVar("Item")
Result = TypeVar("Result")
BACKENDS = ("local", "dask")
AHEAD = 4  # parts given to a cluster at once, for each of its threads; then progress is told
HELD = "2 * n_jobs"  # parts given out on this machine: while one is worked at, the process has the next already
CONNECT_S = 10


@dataclass(frozen=True)
class Workers:
    """Who works.

    Attributes:
        jobs: processes of this machine.
        scheduler: address of a Dask scheduler, in whose place nothing runs here; its workers see the run's folder
            under the same path. Dask sends code and arrays as pickles, so it is a cluster that its user trusts.
    """

    jobs: int = 1
    scheduler: str | None = None

    def each(self, work: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
        """`work` of each item, in order; at most a few results wait in memory.

        Raises:
            OptionError: no such scheduler.
            WorkerError: a process was killed, or the cluster has no workers or gave up on a part. What was yielded
                before stays with the caller.
        """
        if self.scheduler is not None:
            return self._on_cluster(work, items)
        if self.jobs == 1 or len(items) == 1:
            return map(work, items)
        return self._in_processes(work, items)

    def _in_processes(self, work: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
        import joblib

        tasks, count = (joblib.delayed(work)(item) for item in items), 0
        try:
            for result in joblib.Parallel(self.jobs, return_as="generator", pre_dispatch=HELD, batch_size=1)(tasks):
                yield result
                count += 1
        except BrokenProcessPool as error:
            raise WorkerError(
                f"--jobs {self.jobs}: a worker process was killed, as where memory runs out, after {count} of "
                f"{len(items)} parts; give fewer --jobs, or repeat the command"
            ) from error

    def _on_cluster(self, work: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
        import joblib

        with _client(str(self.scheduler)) as client, joblib.parallel_config(backend="dask"):
            for first in range(0, len(items), at_once := AHEAD * _threads(client, str(self.scheduler))):
                tasks = [joblib.delayed(work)(item) for item in items[first : first + at_once]]
                try:
                    yield from joblib.Parallel(-1)(tasks)
                except _killed_worker() as error:
                    raise WorkerError(
                        f"--scheduler {self.scheduler}: its workers died at one part again and again, after {first} of "
                        f"{len(items)} parts; give them more memory, or a longer look at their logs"
                    ) from error


def _threads(client: Any, scheduler: str) -> int:
    """Of all workers together.

    Raises:
        WorkerError: there is none, so that every part would wait for ever.
    """
    threads = sum(client.nthreads().values())
    if not threads:
        raise WorkerError(f"--scheduler {scheduler}: has no workers; start some with dask worker {scheduler}")
    return threads


def _killed_worker() -> type[Exception]:
    from distributed import KilledWorker

    found: type[Exception] = KilledWorker
    return found


HERE = Workers()


def workers_of(jobs: int, backend: str, scheduler: str | None) -> Workers:
    """Workers from options.

    Raises:
        OptionError: no such backend, or a scheduler without Dask and the other way round.
    """
    if backend not in BACKENDS:
        raise OptionError(f"--backend {backend}: there are {', '.join(BACKENDS)}")
    if (backend == "dask") != (scheduler is not None):
        raise OptionError(
            "--backend dask and --scheduler belong together, for example --backend dask --scheduler tcp://host:8786"
        )
    return Workers(jobs, scheduler)


def _client(scheduler: str) -> Any:
    try:
        from distributed import Client
    except ModuleNotFoundError as error:
        raise OptionError(f"--backend dask needs distributed: {install('cluster')}") from error
    try:
        return Client(scheduler, timeout=CONNECT_S)
    except (OSError, ValueError) as error:  # a timeout is an OSError
        raise OptionError(f"--scheduler {scheduler}: no Dask scheduler answers there ({first_line(error)})") from error
