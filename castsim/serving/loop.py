"""The round loop of a batching server.

Requests join and leave between rounds only, and a round's length is known when it starts. So the state changes at one
place, and a plain loop over rounds says that more clearly than an event engine with a process for each request.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from castsim.errors import OptionError
from castsim.serving.batchcost import BatchCost
from castsim.serving.controllers import Array, Controller, Plan, View
from castsim.serving.requests import Numbers, Outputs
from replay.allocate import accepted_at

SEEN_EVERY = 256  # rounds between two reports of progress


@dataclass(frozen=True)
class Server:
    """What the machine can hold.

    Attributes:
        batch: requests in flight at most.
        kv_tokens: keys and values that fit, in tokens; None for no limit. A request reserves prompt and output.
    """

    batch: int = 32
    kv_tokens: int | None = None


@dataclass(frozen=True, eq=False)
class Served:
    """What happened to N requests.

    Attributes:
        arrival_ms, first_ms, finish_ms: (N,) when each came, had its first token, and its last.
        tokens, rounds: (N,) that each got, and took.
        passes: rounds of the server; busy_ms: its time at work; nodes, packed: verified over all passes.
    """

    arrival_ms: Array
    first_ms: Array
    finish_ms: Array
    tokens: Numbers
    rounds: Numbers
    passes: int
    busy_ms: float
    nodes: int
    packed: int


def serve(
    outputs: Outputs,
    which: Numbers,
    arrival_ms: Array,
    controller: Controller,
    cost: BatchCost,
    server: Server,
    done: Callable[[float], None] = lambda _: None,
) -> Served:
    """Serve N requests, first come first served: prefill the new ones, draft, plan, verify, commit, retire.

    A request's tokens depend on its own rounds and its widths alone; its time depends on its neighbours too.

    Args:
        which: (N,) the output that each request is.
        arrival_ms: (N,) rising.

    Raises:
        OptionError: a request that the server can never hold.
    """
    count = len(which)
    need = outputs.prompt_tokens[which] + outputs.tokens[which]
    prefill_ms = np.array([cost.prefill_ms(int(n)) for n in outputs.prompt_tokens])[which]
    _require_room(need, server)
    first, finish = np.zeros(count), np.zeros(count)
    tokens, rounds = np.ones(count, np.int64), np.zeros(count, np.int64)
    who, row = np.empty(0, np.int64), np.empty(0, np.int64)
    plan: Plan | None = None
    clock, busy, coming, passes, nodes, packed = 0.0, 0.0, 0, 0, 0, 0
    while coming < count or len(who):
        if not len(who):
            clock = max(clock, float(arrival_ms[coming]))
        began = clock
        new = _admitted(arrival_ms, need, coming, clock, who, server)
        coming += len(new)
        clock += float(prefill_ms[new].sum())
        first[new] = clock
        who, row = np.concatenate([who, new]), np.concatenate([row, outputs.start[which[new]]])
        here = outputs.pool.take(row)
        plan = controller(View(here.mass, here.spine, here.probability, cost, passes, plan))
        clock += cost.draft_ms(len(who)) + cost.target_ms(len(who), plan.packed)
        entry = here.chain_entry if plan.chain else here.entry
        emitted = np.minimum(accepted_at(entry, plan.widths) + 1, outputs.remaining[row])
        tokens[who] += emitted
        rounds[who] += 1
        stays = emitted < outputs.remaining[row]
        finish[who[~stays]] = clock
        who, row = who[stays], (row + emitted)[stays]
        busy, passes = busy + clock - began, passes + 1
        nodes, packed = nodes + int(plan.widths.sum()), packed + plan.packed
        if passes % SEEN_EVERY == 0:
            done((coming - len(who)) / count)
    return Served(arrival_ms, first, finish, tokens, rounds, passes, busy, nodes, packed)


def _admitted(arrival_ms: Array, need: Numbers, coming: int, clock: float, who: Numbers, server: Server) -> Numbers:
    """The next requests that have come and fit; none passes one that waits."""
    there = int(np.searchsorted(arrival_ms, clock, side="right"))
    new = np.arange(coming, min(there, coming + server.batch - len(who)))
    if server.kv_tokens is None:
        return new
    return new[need[who].sum() + np.cumsum(need[new]) <= server.kv_tokens]


def _require_room(need: NDArray[np.int64], server: Server) -> None:
    if server.kv_tokens is not None and need.max() > server.kv_tokens:
        raise OptionError(
            f"--kv-tokens {server.kv_tokens}: a request of the run needs {need.max()}; give at least that"
        )
