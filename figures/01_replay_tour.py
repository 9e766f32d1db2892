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
# # How much does a tree commit, and on whose rounds?
#
# **Question.** A drafter was recorded once. What would another tree have committed?
#
# **Data.** The sample run that castsim carries: 60 prompts of a small embedded pair, the drafter's marginals at every
# position of the target's answers. No model runs here; everything is NumPy.

# %%
import matplotlib.pyplot as plt
import numpy as np

from castsim.runs.reading import open_run
from castsim.runs.sample import sample_run
from castsim.scoring.policies import choose
from castsim.scoring.replay import results
from castsim.scoring.tally import Plan, domains_of, score
from castsim.show.plots import STYLE

plt.style.use(STYLE)
plt.rcParams["figure.dpi"] = 70
run = open_run(sample_run())
print(run.manifest.prompts, "prompts,", run.manifest.rounds, "positions, L =", run.facts.depth_max)

# %% [markdown]
# A policy is **walked**: its next round starts where its own last round ended, as in a decoder. `score` does that for
# every budget in one pass, because it counts the place of each true prefix in the policy's order and builds no tree.

# %%
WIDTHS = (1, 3, 7, 15, 31, 47, 63, 95, 127)
names = domains_of(run, [])


def scored(mode, policies=("topN",), budgets=WIDTHS):
    plan = Plan(tuple(choose(policies, [])), budgets, mode)
    rows = results(run, plan, score(run, plan, None), names, seed=0)
    return [row for row in rows if row["domain"] == "all"]


walked = scored("walked")
for row in walked:
    low, high = row["ci95"]
    print(
        f"{row['policy']:6s} N = {row['budget']:3d}  R pooled {row['committed_pooled']:.3f}  per prompt "
        f"{row['committed_per_prompt']:.3f} [{low:.2f}, {high:.2f}]"
    )

# %% [markdown]
# ## The usual score flatters
#
# A log of the chain's rounds can score another tree only on those rounds. They begin where the chain failed, which is
# where a tree has most to gain. On a dense log both can be computed, so the bias shows.

# %%
chain_rounds = scored("chain_rounds")
everywhere = scored("per_round")
figure, axis = plt.subplots(figsize=(7, 4))
for rows, label in (
    (walked, "walked: a forecast"),
    (chain_rounds, "on the chain's rounds"),
    (everywhere, "at every position"),
):
    tree = [row for row in rows if row["policy"] == "topN"]
    axis.plot([row["budget"] for row in tree], [row["committed_pooled"] for row in tree], "o-", label=label)
axis.set(xlabel="nodes N", ylabel="R, tokens a round (pooled)", xscale="log", title="The same trees, three scores")
axis.legend()
plt.show()

# %%
at = {row["budget"]: row["committed_pooled"] for row in walked if row["policy"] == "topN"}
flat = {row["budget"]: row["committed_pooled"] for row in chain_rounds if row["policy"] == "topN"}
print(f"N = 63: walked {at[63]:.3f}, on the chain's rounds {flat[63]:.3f}, {flat[63] / at[63] - 1:+.1%}")

# %% [markdown]
# ## Every policy at one size

# %%
rows = scored("walked", ("topN", "full", "spine", "schedule", "binary", "jetspec", "eagle2", "sequoia"), (31,))
for row in sorted(rows, key=lambda r: -r["committed_pooled"]):
    print(
        f"{row['policy']:9s} N = {row['budget']:3d}  R {row['committed_pooled']:.3f}  gain over the chain in rounds "
        f"{row['gain_over_chain']:+.1%}"
    )

# %% [markdown]
# **What it says.** Best-first order is the best use of a fixed number of nodes here, fixed shapes are not; and a score on
# the chain's rounds is not a forecast. How wide to go is another question, which needs a latency probe: see
# `02_width_on_your_gpu`.

# %%
best = max((row for row in rows if row["policy"] != "chain"), key=lambda r: r["committed_pooled"])
print("best of the list at N = 31:", best["policy"], np.round(best["committed_pooled"], 3))
