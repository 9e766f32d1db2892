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
# # One budget for many requests
#
# **Question.** When many requests share a pass, how many nodes should each get?
#
# **Data.** Rounds of the sample run as requests. Proposition 3 adds nodes to the batch, best first, while the next one's
# mass beats the batch's tokens a millisecond times what a node costs.

# %%
import matplotlib.pyplot as plt
import numpy as np

from castsim.advice.acceptance import round_masses
from castsim.costs.batch import TAX, TAX_TOKENS
from castsim.costs.probefile import open_probe
from castsim.runs.reading import open_run
from castsim.runs.sample import sample_run
from castsim.show.figures import figure_6
from castsim.show.plots import STYLE
from castsim.show.sources import Sources
from replay.width import batch_stopping_budget, stopping_budget

plt.style.use(STYLE)
plt.rcParams["figure.dpi"] = 70
run = open_run(sample_run())
mass = round_masses(run, None, 8, 127, lambda _: None)
print(mass.shape[0], "rounds of the chain")

# %% [markdown]
# ## Load makes nodes dear
#
# The paper prints what a pass of 64 tokens a request costs over one of a single token: 10 % more for one request, 79 % for
# 8, 237 % for 32. Read as a slope, that is the price of a node. Beside it the pair that castsim carries, measured on a
# 2-core CPU, where a pass is dear by its tokens from the first one on; b and c are its times at two prefixes.

# %%
figure, axes = plt.subplots(1, 3, figsize=(12, 3.4), layout="constrained")
figure_6.draw(figure_6.table(Sources(run, open_probe("pair-cpu-batches"))), list(axes))
plt.show()

# %%
rng = np.random.default_rng(0)
FIXED_MS = 27.0  # of a pass that packs the roots alone, drafter included; the scale cancels in the answer
for batch, tax in TAX.items():
    slope = FIXED_MS * tax / (TAX_TOKENS - figure_6.CHEAP) / batch  # a node of one request
    totals = []
    for _ in range(20):
        requests = mass[rng.integers(len(mass), size=batch)]
        totals.append(batch_stopping_budget(requests, fixed_ms=FIXED_MS, slope_ms=slope))
    print(f"B = {batch:2d}: {np.mean(totals):6.1f} nodes for the batch, {np.mean(totals) / batch:5.1f} a request")

# %% [markdown]
# At one request the rule is Theorem 2's:

# %%
one = mass[:1]
both = (
    batch_stopping_budget(one, fixed_ms=FIXED_MS, slope_ms=0.1),
    stopping_budget(one[0], fixed_ms=FIXED_MS, slope_ms=0.1),
)
print("B = 1:", both)

# %% [markdown]
# ## What sharing is worth
#
# The same total, split evenly or given to the best nodes of the whole batch, in expected accepted tokens.

# %%
for per_request in (2, 4, 8, 16):
    even, shared = [], []
    for _ in range(200):
        requests = mass[rng.integers(len(mass), size=32)]
        even.append(requests[:, :per_request].sum())
        shared.append(np.sort(requests, axis=None)[::-1][: 32 * per_request].sum())
    print(f"{per_request:2d} nodes a request: {np.mean(shared) / np.mean(even) - 1:+.1%} expected accepted tokens")

# %% [markdown]
# **What it says.** Under load the width per request falls fast, and the scarcer the budget, the more it matters who gets
# it. These are the drafter's expectations; accepted tokens and serving come with `castsim allocate`.
