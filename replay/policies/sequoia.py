"""sequoia: one static tree, optimal for measured acceptance rates of ranks."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from replay.forest import Forest, gather
from replay.policies import require_counts
from replay.rounds import Marginals
from replay.topn import best_first


@dataclass(frozen=True)
class Sequoia:
    """The tree of N nodes that accepts most if the token of depth d has rank r with probability `table[d][r]`.

    All rounds share the tree: it knows the ranks, not the scores. The table belongs to other prompts than the ones
    decoded (`castsim replay` measures it on the other half of the prompts); without one, rank r counts 2**-r.

    Source: Sequoia (arXiv 2402.12374), section 3.1, which finds the tree by dynamic programming over sizes and child
    ranks. Under its own assumption, that acceptance depends on position alone, a node's mass is the product of its
    table entries, so Theorem 1 gives the same optimum by best-first selection; a test holds the two equal. Its rates
    are one vector for all depths; read here: one for each depth, since a one-pass drafter fades with depth.
    """

    name: ClassVar[str] = "sequoia"
    nested: ClassVar[bool] = True
    budget: int = 63
    table: tuple[tuple[float, ...], ...] = field(default=(), metadata={"measured": True})

    def __post_init__(self) -> None:
        require_counts(budget=self.budget)

    def measured(self, table: NDArray[np.float64]) -> Sequoia:
        """This policy with rates (L, K), the share of rounds that have each rank at each depth."""
        return replace(self, table=tuple(map(tuple, np.asarray(table, np.float64).tolist())))

    def __call__(self, marginals: Marginals) -> Forest:
        shape = (marginals.depth_max, marginals.rank_kept)
        rates = np.array(self.table) if self.table else np.broadcast_to(0.5 ** np.arange(1, shape[1] + 1), shape)
        if rates.shape != shape:
            raise ValueError(f"table must have shape {shape}, not {rates.shape}")
        with np.errstate(divide="ignore"):
            logs = np.log(rates)[None]  # (1, L, K); here a candidate's id is its rank
        tree = best_first(Marginals.ranked(np.broadcast_to(np.arange(shape[1]), logs.shape), logs), self.budget)
        node = slice(1, int(tree.width[0]) + 1)
        return gather(marginals, tree.parent[0, node], tree.depth[0, node], tree.token[0, node])
