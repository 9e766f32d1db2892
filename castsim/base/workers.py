"""Where the parts of a sweep run: in this process, in several, or on a Dask cluster that is already there."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from castsim.base.errors import OptionError, WorkerError, first_line
from castsim.base.extras import install

Item = TypeVar("Item")
Result = TypeVar("Result")
BACKENDS = ("local", "dask")
AHEAD = 4  # parts given to a cluster at once, for each of its threads; then progress is told
HELD = "2 * n_jobs"  # parts given out on this machine: while one is worked at, the process has the next already
CONNECT_S = 10
LOOK_S = 10  # between looks at whether a cluster still has workers, without which a part would wait for ever


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
        with _client(str(self.scheduler)) as client:
            if not _has_workers(client):
                raise WorkerError(
                    f"--scheduler {self.scheduler}: has no workers; start some with dask worker {self.scheduler}"
                )
            for count, future in enumerate(_given_out(client, work, items)):
                if problem := _problem(client, future):
                    raise WorkerError(
                        f"--scheduler {self.scheduler}: {problem}, after {count} of {len(items)} parts; see the "
                        "cluster's logs, and repeat the command"
                    )
                yield future.result()


def _given_out(client: Any, work: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Any]:
    """Futures in order; each thread of the cluster has some parts ahead of the one that is waited for."""
    ahead = AHEAD * sum(client.nthreads().values())
    waiting = deque[Any]()
    for item in items:
        waiting.append(client.submit(partial(work, item), pure=False))
        if len(waiting) > ahead:
            yield waiting.popleft()
    while waiting:
        yield waiting.popleft()


def _problem(client: Any, future: Any) -> str | None:
    """Wait for a part: why it will never come, or None where it has come or failed by its own fault."""
    from distributed import KilledWorker, wait

    while not future.done():
        try:
            wait([future], timeout=LOOK_S)
        except TimeoutError:
            if not _has_workers(client):
                return "its last worker has gone"
        except CancelledError:
            break
    if future.status in ("cancelled", "lost"):
        return "the scheduler has gone"
    killed = isinstance(future.exception(), KilledWorker)
    return "its workers died at one part again and again, as where memory runs out" if killed else None


def _has_workers(client: Any) -> bool:
    """Whether a worker is there, or comes within `CONNECT_S`."""
    try:
        client.wait_for_workers(1, timeout=CONNECT_S)
    except OSError:  # a timeout is one, so is a scheduler that has gone
        return False
    return True


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
    logging.getLogger("distributed.client").setLevel(logging.CRITICAL)  # a lost scheduler is told once, by the verb
    try:
        return Client(scheduler, timeout=CONNECT_S)
    except (OSError, ValueError) as error:  # a timeout is an OSError
        raise OptionError(f"--scheduler {scheduler}: no Dask scheduler answers there ({first_line(error)})") from error
