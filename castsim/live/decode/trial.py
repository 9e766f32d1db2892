"""A small tree before anything is decoded: does this target see what it is told to see?"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from castsim.base.errors import ModelError, in_one_line
from castsim.live.decode.pack import chain, pack
from castsim.live.models.attention import Windows
from castsim.live.models.cache import KeyValueCache
from castsim.live.models.noise import HUGE, allowed, deviation, own_noise
from castsim.live.models.target import Target
from castsim.scoring.tree import Tree

PREFIX = (1, 2, 3)
TREE = Tree(  # the root, two children and a child of each, which carry one token
    np.array([4, 5, 6, 1, 1]),
    np.array([-1, 0, 0, 1, 2], np.int32),
    np.array([0, 1, 1, 2, 2], np.int32),
    np.ones(5),
)
PATH = [0, 1, 3]  # rows of a root, child and grandchild


def require_trees(target: Target, windows: Windows) -> None:
    """Refuse a target that does not verify a tree as Lemma 1 asks.

    Attention code may leave out a mask, a model its position ids, a layer the cache: each would decode wrongly in
    silence.

    Raises:
        ModelError: rows of a packed tree differ from a standalone forward, or see their siblings.
    """
    try:
        apart, leak, noise = _tried(target, windows)
    except Exception as error:  # whatever a model of another kind does with a mask, positions or a cache
        if "out of memory" in str(error):
            raise
        problem = f"{type(target.model).__name__} cannot verify a tree ({in_one_line(error)})"
        raise ModelError(target.name, problem, "use a causal transformer that takes masks and position ids") from error
    limit = allowed(target.dtype, noise)  # experts of a mixture may round otherwise beside another token
    # What is no number is left to the decoder, which names the type that it comes from.
    if apart < HUGE and (apart > 3 * limit or leak > limit):
        seen = "a row sees its sibling" if leak > limit else f"a row is {apart:.2g} off a standalone forward"
        problem = f"{type(target.model).__name__} does not verify trees exactly: {seen}"
        raise ModelError(target.name, problem, "use another target")


@torch.inference_mode()
def _tried(target: Target, windows: Windows) -> tuple[float, float, float]:
    """How far a path's rows are from a standalone forward, and from themselves beside another sibling; and the model's
    own noise; relative.
    """
    packed = _rows(target, windows, TREE)[PATH]
    other = replace(TREE, token=np.array([4, 5, 2, 1, 3]))
    again = _rows(target, windows, other)[PATH]
    ids = torch.tensor([[*PREFIX, *TREE.token[PATH]]], device=target.device) % target.embedding_rows
    alone = target.model(ids, use_cache=False).logits[0, -len(PATH) :]
    return deviation(packed, alone), deviation(packed, again), own_noise(target, ids, len(PATH))


def _rows(target: Target, windows: Windows, tree: Tree) -> Tensor:
    """Logits (5, V) of a tree behind the prefix."""
    cache = KeyValueCache(target.layers, len(PREFIX) + len(tree))
    for part in (chain(PREFIX), tree):
        packed = pack([part], [cache.length], windows, target.dtype, target.device)
        ids = packed.ids % target.embedding_rows
        logits, _ = target.read(ids, packed.positions, packed.mask, cache, ())
        if cache.layers_filled < target.layers:
            raise ValueError(f"{target.layers - cache.layers_filled} of its layers keep no keys and values")
        if part is not tree:
            cache.commit(range(len(PREFIX)))
    return logits[0]
