"""What operators ask of a served load: goodput, waits, and how many requests were served in time."""

from __future__ import annotations

from typing import Any

import numpy as np

from castsim.serving.controllers import Array
from castsim.serving.server import Passes, Served

QUANTILES = (50, 95, 99)


def steady(served: Served) -> tuple[float, float] | None:
    """The part of a load in which the server neither fills nor empties: from the end of the first request to the last
    admission. None where nothing lies between.
    """
    opened, closed = float(served.finish_ms.min()), float(served.first_ms.max())
    inside = (served.passes.began_ms >= opened) & (served.passes.ended_ms <= closed)
    ends = (served.finish_ms > opened) & (served.finish_ms <= closed) & (served.tokens > 1)
    starts = (served.first_ms > opened) & (served.first_ms <= closed)
    return (opened, closed) if inside.any() and ends.any() and starts.any() else None


def measures(served: Served, within_ms: float, window: tuple[float, float] | None = None) -> dict[str, Any]:
    """One row of `castsim serve`.

    Goodput is committed tokens over the time of the window: those of passes that lie in it. Waits are of requests whose
    first token lies in it, times per output token of those whose last one does; they are over the tokens behind the
    first, and an output of one token has none. Requests in the system are a mean over the window.

    Args:
        window: from and to, in ms; None is from the first arrival to the last token.
    """
    low, high = window or (float(served.arrival_ms.min()), float(served.finish_ms.max()))
    span, every = high - low, window is None
    own = np.flatnonzero(every | ((served.passes.began_ms >= low) & (served.passes.ended_ms <= high)))
    log = Passes(*(column[own] for column in served.passes))
    started = every | ((served.first_ms > low) & (served.first_ms <= high))
    ended = (every | ((served.finish_ms > low) & (served.finish_ms <= high))) & (served.tokens > 1)
    each = (served.finish_ms - served.first_ms)[ended] / (served.tokens[ended] - 1)
    there = np.clip(np.minimum(served.finish_ms, high) - np.maximum(served.arrival_ms, low), 0, None)
    rounds, count, busy = int(log.requests.sum()), len(own), float((log.ended_ms - log.began_ms).sum())
    return {
        "window_ms": [low, high],
        "goodput_tok_per_s": 1000 * int(log.emitted.sum() + log.new.sum()) / span,
        "round_length": int(log.emitted.sum()) / rounds,
        "requests_in_pass": rounds / count,
        "nodes_a_request": int(log.nodes.sum()) / rounds,
        "packed_a_pass": int(log.packed.sum()) / count,
        "ms_a_pass": busy / count,
        "busy_share": busy / span,
        "requests_in_system": float(there.sum()) / span,
        "kv_tokens_most": int(log.kv_tokens.max()),
        "first_token_ms": _quantiles((served.first_ms - served.arrival_ms)[started]),
        "output_token_ms": _quantiles(each),
        "within_share": float((each <= within_ms).mean()),
    }


def _quantiles(values: Array) -> dict[str, float]:
    return {f"p{q}": float(v) for q, v in zip(QUANTILES, np.percentile(values, QUANTILES), strict=True)}
