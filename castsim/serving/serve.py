"""Every controller at every load, with the same requests, arrivals and costs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from castsim.base.errors import OptionError
from castsim.base.workers import Workers
from castsim.costs.batch import BatchCost
from castsim.serving.arrivals import Times, arrivals
from castsim.serving.controllers import Controller
from castsim.serving.measures import measures, steady
from castsim.serving.requests import Requests
from castsim.serving.server import Server, serve
from castsim.serving.trace import Trace

STATIC = ("chain", "uniform", "wide")  # controllers that do the same in every round
WINDOWS = ("steady", "all")
STREAM = 2  # of arrivals, beside that of outputs


@dataclass(frozen=True)
class Load:
    """A load of the server.

    Attributes:
        kind: closed (all requests wait from the start, so `batch` of them are always in flight), poisson, bursty, or a
            trace's file.
        batch: requests in flight at most; rate_per_s: of an open load; trace: of a file.
    """

    kind: str
    batch: int
    rate_per_s: float | None = None
    trace: Trace | None = None

    @property
    def label(self) -> str:
        """What tables call it."""
        if self.kind == "closed":
            return f"{self.batch} in flight"
        return f"{self.rate_per_s:g} a second" if self.rate_per_s is not None else Path(self.kind).name


def times(load: Load, count: int, seed: int) -> Times:
    """(count,) arrival times; of a trace its first ones.

    Raises:
        OptionError: see `arrivals`.
    """
    if load.kind == "closed":
        return np.zeros(count)
    if load.trace is not None:
        return load.trace.arrival_ms[:count]
    return arrivals(load.kind, load.rate_per_s or 0.0, count, np.random.default_rng([seed, STREAM]))


@dataclass(frozen=True)
class Asked:
    """What is served, and judged.

    Attributes:
        requests: of each load; kv_tokens: see `Server`; within_ms: target of the time per output token.
        window: "steady" measures the part in which the server neither fills nor empties, "all" all of it.
    """

    requests: int = 128
    kv_tokens: int | None = None
    within_ms: float = 20.0
    seed: int = 0
    window: str = WINDOWS[0]


def sweep(
    requests: Requests,
    loads: Sequence[Load],
    controllers: Sequence[Controller],
    cost: BatchCost,
    asked: Asked,
    workers: Workers,
    done: Callable[[float], None] = lambda _: None,
) -> list[dict[str, Any]]:
    """A row of `measures` for each load and controller, and what it gains on the chain and on the best static one.

    Raises:
        OptionError: more requests in flight than the run has outputs, or a cost that does not reach them.
    """
    most = max(load.batch for load in loads)
    if most > requests.of:
        raise OptionError(
            f"{most} requests in flight: the run has {requests.of} outputs, and one would be served beside "
            "itself; give fewer, or a longer run"
        )
    pairs = [(load, controller) for load in loads for controller in controllers]
    rows = []
    for row in workers.each(lambda pair: _row(requests, *pair, cost, asked), pairs):
        rows.append(row)
        done(len(rows) / len(pairs))
    return [row for load in loads for row in _compared([row for row in rows if row["load"] == load.label])]


def _row(requests: Requests, load: Load, controller: Controller, cost: BatchCost, asked: Asked) -> dict[str, Any]:
    arrival = times(load, asked.requests, asked.seed)
    served = serve(requests.first(len(arrival)), arrival, controller, cost, Server(load.batch, asked.kv_tokens))
    part = steady(served) if asked.window == WINDOWS[0] else None
    about = {"load": load.label, "batch": load.batch, "rate_per_s": load.rate_per_s, "controller": controller.name}
    return {**about, "window": WINDOWS[part is None], **measures(served, asked.within_ms, part)}


def _compared(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    speed = {row["controller"]: row["goodput_tok_per_s"] for row in rows}
    static = {name: speed[name] for name in STATIC if name in speed}
    best = max(static, key=lambda name: static[name]) if static else None
    winner = max(speed, key=lambda name: speed[name])
    return [
        {
            **row,
            "gain_over_best_static": None if best is None else row["goodput_tok_per_s"] / static[best] - 1,
            "best_static": best,
            "best": row["controller"] == winner,
        }
        for row in rows
    ]
