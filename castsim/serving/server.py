"""The round loop of a batching server.

Requests join and leave between rounds only, and a round's length is known when it starts. So the state changes at one
place, and a plain loop over rounds says that more clearly than an event engine with a process for each request.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from castsim.base.errors import OptionError
from castsim.costs.batch import BatchCost
from castsim.serving.controllers import Array, Controller, Plan, View
from castsim.serving.requests import Numbers, Requests
from replay.allocate import accepted_at

SEEN_EVERY = 256  # rounds between two reports of progress


@dataclass(frozen=True)
class Server:
    """What the machine can hold.

    Attributes:
        batch: requests in flight at most.
        kv_tokens: keys and values that fit, in tokens; None for no limit. A request reserves its prompt, its output and
            the nodes of a round.
    """

    batch: int = 32
    kv_tokens: int | None = None


class Passes(NamedTuple):
    """Rounds of the server, (P,) each.

    Attributes:
        began_ms, ended_ms: its time at work.
        requests: that were verified; new: those among them that were prefilled before.
        emitted: tokens, without the one that each prefill gives; nodes, packed: verified.
        kv_tokens: keys and values that were held at most, the nodes included.
    """

    began_ms: Array
    ended_ms: Array
    requests: Numbers
    new: Numbers
    emitted: Numbers
    nodes: Numbers
    packed: Numbers
    kv_tokens: Numbers


@dataclass(frozen=True, eq=False)
class Served:
    """What happened to N requests.

    Attributes:
        arrival_ms, first_ms, finish_ms: (N,) when each came, had its first token, and its last.
        tokens, rounds: (N,) that each got, and took.
        passes: the rounds of the server.
    """

    arrival_ms: Array
    first_ms: Array
    finish_ms: Array
    tokens: Numbers
    rounds: Numbers
    passes: Passes


def serve(
    requests: Requests,
    arrival_ms: Array,
    controller: Controller,
    cost: BatchCost,
    server: Server,
    done: Callable[[float], None] = lambda _: None,
) -> Served:
    """Serve N requests, first come first served: prefill the new ones, draft, plan, verify, commit, retire.

    A request's tokens depend on its own rounds and its widths alone; its time depends on its neighbours too. Each pass
    is priced at the cached tokens of its requests, a prefill at half of its prompt.

    Args:
        arrival_ms: (N,) rising.

    Raises:
        OptionError: a request that the server can never hold.
    """
    outputs, which, prompt = requests.outputs, requests.which, requests.prompt_tokens
    count, depth_max = len(which), outputs.pool.spine.shape[1]
    need = prompt + outputs.tokens[which] + controller.reserved(depth_max)
    prefill_ms = _prefills(prompt, cost)
    _require_room(need, server)
    first, finish = np.zeros(count), np.zeros(count)
    tokens, rounds = np.ones(count, np.int64), np.zeros(count, np.int64)
    who, row = np.empty(0, np.int64), np.empty(0, np.int64)
    plan: Plan | None = None
    clock, coming, log = 0.0, 0, list[tuple[float, ...]]()
    while coming < count or len(who):
        if not len(who):
            clock = max(clock, float(arrival_ms[coming]))
        began = clock
        new = _admitted(arrival_ms, need, coming, clock, who, server)
        coming += len(new)
        clock += float(prefill_ms[new].sum())
        first[new] = clock
        who, row = np.concatenate([who, new]), np.concatenate([row, outputs.start[which[new]]])
        here, cached = outputs.pool.take(row), prompt[who] + tokens[who] - 1
        price = cost.at(cached)
        plan = controller(View(here.mass, here.spine, here.probability, price, len(log), plan))
        clock += price.draft_ms(len(who)) + price.target_ms(len(who), plan.packed)
        entry = here.chain_entry if plan.chain else here.entry
        emitted = np.minimum(accepted_at(entry, plan.widths) + 1, outputs.remaining[row])
        held, nodes = int(cached.sum()) + len(who), int(plan.widths.sum())
        log.append((began, clock, len(who), len(new), int(emitted.sum()), nodes, plan.packed, held + nodes))
        tokens[who] += emitted
        rounds[who] += 1
        stays = emitted < outputs.remaining[row]
        finish[who[~stays]] = clock
        who, row = who[stays], (row + emitted)[stays]
        if len(log) % SEEN_EVERY == 0:
            done((coming - len(who)) / count)
    return Served(arrival_ms, first, finish, tokens, rounds, _passes(log))


def _passes(log: list[tuple[float, ...]]) -> Passes:
    began, ended, *counts = zip(*log, strict=True)
    return Passes(np.array(began), np.array(ended), *(np.array(c, np.int64) for c in counts))


def _prefills(prompt_tokens: Numbers, cost: BatchCost) -> Array:
    """(N,) ms of each prompt's own pass."""
    length, place = np.unique(prompt_tokens, return_inverse=True)
    return np.array([cost.at(np.array([n // 2])).prefill_ms(int(n)) for n in length])[place]


def _admitted(arrival_ms: Array, need: Numbers, coming: int, clock: float, who: Numbers, server: Server) -> Numbers:
    """The next requests that have come and fit; none passes one that waits."""
    there = int(np.searchsorted(arrival_ms, clock, side="right"))
    new = np.arange(coming, min(there, coming + server.batch - len(who)))
    if server.kv_tokens is None:
        return new
    return new[need[who].sum() + np.cumsum(need[new]) <= server.kv_tokens]


def _require_room(need: NDArray[np.int64], server: Server) -> None:
    if server.kv_tokens is not None and need.max() > server.kv_tokens:
        problem = f"a request with the nodes of a round needs {need.max()}; give that at least"
        raise OptionError(f"--kv-tokens {server.kv_tokens}: {problem}")
