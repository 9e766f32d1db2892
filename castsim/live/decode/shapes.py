"""What a probe times: passes of a target and its drafter in every shape, over random tokens and trees."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from castsim.base.errors import ModelError
from castsim.live.decode.pack import Packed, chain, pack
from castsim.live.models.attention import Windows
from castsim.live.models.cache import KeyValueCache, cache_argument
from castsim.live.models.drafter import Drafter
from castsim.live.models.target import Target
from castsim.scoring.tree import Tree, tree_of
from replay.rounds import Marginals
from replay.topn import best_first

PIECE = 512  # tokens that a prefill reads at once
DEPTH, RANKS = 15, 8  # of the random trees
Work = Callable[[], object]
PACKED = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128)
PREFIX = 1024  # the paper's


@dataclass(frozen=True)
class ProbeOptions:
    """What to time.

    Attributes:
        packed, prefixes, batches: the axes of the curve, each rising.
        warmups, iterations: of each shape; one pass over all shapes is an iteration.
        plain: without tree mask and hidden states, with the library's own cache, as the paper's probe.
    """

    packed: tuple[int, ...] = PACKED
    prefixes: tuple[int, ...] = (PREFIX,)
    batches: tuple[int, ...] = (1,)
    warmups: int = 8
    iterations: int = 30
    plain: bool = False
    seed: int = 0


class Job(NamedTuple):
    """One shape: what is timed, and what has to be made anew before each time, untimed."""

    cell: tuple[int, int, int]  # places on the axes prefix, batch, packed; packed -1 is the drafter
    prepare: Work
    run: Work


def jobs(target: Target, drafter: Drafter | None, options: ProbeOptions, windows: Windows | None) -> Iterator[Job]:
    """Every shape."""
    rng = np.random.default_rng(options.seed)
    for p, prefix in enumerate(options.prefixes):
        for b, batch in enumerate(options.batches):
            ids = torch.from_numpy(rng.integers(target.vocab_size, size=(batch, prefix + options.packed[-1])))
            ids = (ids % target.embedding_rows).to(target.device)
            make = _plain_jobs if windows is None else _tree_jobs
            for n, (prepare, run) in enumerate(make(target, drafter, options, windows, ids, prefix)):
                yield Job((p, b, n), prepare, run)
            if drafter is not None:
                yield Job((p, b, -1), _nothing, _draft(drafter, ids, prefix))


def _nothing() -> None:
    pass


def _tree_jobs(
    target: Target, drafter: Drafter | None, options: ProbeOptions, windows: Windows | None, ids: Tensor, prefix: int
) -> Iterator[tuple[Work, Work]]:
    """Passes over random trees behind one cache, whose rows stay provisional."""
    batch, windows = len(ids), windows or {}
    layer_ids = () if drafter is None else drafter.layer_ids
    cache = KeyValueCache(target.layers, prefix + options.packed[-1])
    for begin in range(0, prefix, PIECE):
        end = min(begin + PIECE, prefix)
        piece = _packed(target, windows, [chain(row) for row in ids[:, begin:end].tolist()], begin)
        target.read(piece.ids, piece.positions, piece.mask, cache, (), 1)
        cache.commit(range(end - begin))
    for n in options.packed:
        inputs = _packed(target, windows, [random_tree(n, seed) for seed in range(batch)], prefix)
        inputs = Packed(inputs.ids % target.embedding_rows, inputs.positions, inputs.mask)

        def run(inputs: Packed = inputs) -> object:
            return target.read(inputs.ids, inputs.positions, inputs.mask, cache, layer_ids)

        yield _nothing, run


def _packed(target: Target, windows: Windows, trees: list[Tree], prefix: int) -> Packed:
    return pack(trees, [prefix] * len(trees), windows, target.dtype, target.device)


def random_tree(packed: int, seed: int) -> Tree:
    """A best-first tree of `packed` rows over random marginals, so of the shape that decoding has."""
    rng = np.random.default_rng(seed)
    mass = -np.sort(-rng.dirichlet(np.full(RANKS + 1, 0.3), (1, DEPTH))[:, :, :RANKS], axis=2)
    token = np.argsort(rng.random((1, DEPTH, 64)), axis=2)[:, :, :RANKS]
    found = Marginals(token, np.log(np.maximum(mass, 1e-30)))
    return tree_of(best_first(found, max(packed - 1, 1)).head(packed - 1), found, 0)


def _plain_jobs(
    target: Target, drafter: Drafter | None, options: ProbeOptions, windows: Windows | None, ids: Tensor, prefix: int
) -> Iterator[tuple[Work, Work]]:
    """Causal passes behind the library's own cache, of which each time gets an untimed copy (D.1)."""
    name, whole = cache_argument(type(target.model)), None
    if prefix:
        whole = _cache_of(target.model(ids[:, :prefix], use_cache=True, logits_to_keep=1), target)
    for n in options.packed:
        rows, state = ids[:, prefix : prefix + n], {}

        def prepare(state: dict[str, Any] = state) -> None:
            state[name] = copy.deepcopy(whole)

        def run(rows: Tensor = rows, state: dict[str, Any] = state) -> object:
            return target.model(rows, use_cache=True, **state)

        yield prepare, run


def _cache_of(found: Any, target: Target) -> Any:
    """The state that a model of transformers returns."""
    for name in ("past_key_values", "cache", "cache_params"):
        if (state := getattr(found, name, None)) is not None:
            return state
    raise ModelError(target.name, f"{type(target.model).__name__} returns no cache", "use another target")


def _draft(drafter: Drafter, ids: Tensor, prefix: int) -> Work:
    """The drafter's pass behind a prefix of random features."""
    target, width = drafter.target, len(drafter.layer_ids) * drafter.target.hidden_size
    seeded = torch.Generator().manual_seed(0)
    features = torch.randn(len(ids), prefix, width, generator=seeded).to(target.device, target.dtype)
    if len(ids) == 1:
        context = drafter.growing(prefix + 1)
        drafter.extend(context, features, ids[:, 1 : prefix + 1])
        return lambda: drafter.draft(context, ids)
    whole = drafter.context(features, ids)
    anchor = torch.full((len(ids), 1), prefix, device=ids.device)
    return lambda: drafter.logits(whole, ids, anchor)
