# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Write a policy
#
# **Question.** You have an idea for a tree. What does it take to try it?
#
# A policy is one frozen dataclass in one file of `replay/policies`. It sees the drafter's marginals and never the answer.
# Put there, the command line, its help and the contract tests find it; here it is made in the notebook.
#
# The idea: best-first, but no node below a product of `least`, so that rounds where the drafter is lost stay small.

# %%
from dataclasses import dataclass
from typing import ClassVar

import matplotlib.pyplot as plt
import numpy as np

from castsim.runs.reading import open_run
from castsim.runs.sample import sample_run
from castsim.scoring.policies import Choice
from castsim.scoring.replay import results
from castsim.scoring.tally import Plan, domains_of, score
from castsim.show.plots import STYLE
from replay import Forest, Marginals, best_first
from replay.policies import require_counts
from replay.policies.topn import TopN

plt.style.use(STYLE)
plt.rcParams["figure.dpi"] = 70


@dataclass(frozen=True)
class Floor:
    """topN without nodes of a mass below `least`.

    Source: this notebook.
    """

    name: ClassVar[str] = "floor"
    nested: ClassVar[bool] = True  # the tree of a smaller budget is a head of a larger one's
    budget: int = 63
    least: float = 0.01

    def __post_init__(self) -> None:
        require_counts(budget=self.budget)

    def __call__(self, marginals: Marginals) -> Forest:
        forest = best_first(marginals.head(rank_cap=8), self.budget)
        kept = (forest.score[:, 1:] >= np.log(self.least)).sum(axis=1)
        return forest.cut(np.maximum(kept, 1))


# %% [markdown]
# ## Its contract
#
# `check` refuses a forest that is none: parents before children, distinct siblings, falling scores. The tests in
# `tests/replay/test_policies.py` run for every file of the folder; these are the same claims on the sample's rounds.

# %%
run = open_run(sample_run())
marginals = next(iter(run.rounds())).marginals.take(slice(0, 500))
small, large = Floor(15)(marginals).check(), Floor(63)(marginals).check()
head = large.head(15)
assert np.array_equal(small.token, head.token) and np.array_equal(small.parent, head.parent)
print(
    "trees are trees; the budget-15 tree is a head of the budget-63 tree; mean size",
    large.width.mean().round(1),
    "of 63",
)

# %% [markdown]
# ## Its score, beside the others

# %%
names = domains_of(run, [])
choices = (Choice(TopN), *(Choice(Floor, {"least": least}) for least in (0.003, 0.01, 0.03)))
plan = Plan(choices, (9, 15, 25, 31, 48, 63, 127), "walked")
rows = [r for r in results(run, plan, score(run, plan, None), names, seed=0) if r["domain"] == "all"]
for row in rows:
    label = row["policy"] + (f" {row['options']['least']}" if row["options"].get("least") else "")
    print(f"{label:12s} N = {row['budget']:3d}  R {row['committed_pooled']:.3f}  mean nodes {row['nodes']:5.1f}")

# %%
figure, axis = plt.subplots(figsize=(7, 4))
for choice in choices:
    mine = [
        r
        for r in rows
        if (r["policy"], r["options"].get("least")) == (choice.kind.name, choice.all_options.get("least"))
    ]
    label = choice.kind.name + (f", least {choice.options['least']}" if choice.options else "")
    axis.plot([r["nodes"] for r in mine], [r["committed_pooled"] for r in mine], "o-", label=label)
axis.set(xlabel="mean nodes of a round", ylabel="R, tokens a round (pooled, walked)", title="What a floor buys")
axis.legend()
plt.show()

# %% [markdown]
# **What it says.** At the same mean size a floor commits about what a fixed width does, a little more for large trees: on
# this run the nodes that it saves in hard rounds are worth little elsewhere. What a node is worth in time depends on the
# probe; `perround` weighs it against that.
