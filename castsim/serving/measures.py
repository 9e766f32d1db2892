"""What operators ask of a served load: goodput, waits, and how many requests were served in time."""

from __future__ import annotations

from typing import Any

import numpy as np

from castsim.serving.controllers import Array
from castsim.serving.loop import Served

QUANTILES = (50, 95, 99)


def measures(served: Served, within_ms: float) -> dict[str, Any]:
    """One row of `castsim serve`.

    Goodput is committed tokens over the time from the first arrival to the last token. Time per output token is over
    the tokens behind the first; an output of one token has none. Little's law gives the requests in the system from
    the same numbers: their times there, summed, over the whole time.
    """
    span = float(served.finish_ms.max() - served.arrival_ms.min())
    there = served.finish_ms - served.arrival_ms
    many = served.tokens > 1
    each = (served.finish_ms - served.first_ms)[many] / (served.tokens[many] - 1)
    rounds = int(served.rounds.sum())
    return {
        "goodput_tok_per_s": 1000 * int(served.tokens.sum()) / span,
        "round_length": int((served.tokens - 1).sum()) / rounds,
        "requests_in_pass": rounds / served.passes,
        "nodes_a_request": served.nodes / rounds,
        "packed_a_pass": served.packed / served.passes,
        "ms_a_pass": served.busy_ms / served.passes,
        "busy_share": served.busy_ms / span,
        "requests_in_system": float(there.sum()) / span,
        "first_token_ms": _quantiles(served.first_ms - served.arrival_ms),
        "output_token_ms": _quantiles(each),
        "within_share": float((each <= within_ms).mean()),
    }


def _quantiles(values: Array) -> dict[str, float]:
    return {f"p{q}": float(v) for q, v in zip(QUANTILES, np.percentile(values, QUANTILES), strict=True)}
