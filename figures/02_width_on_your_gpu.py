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
# # How wide should the tree be on this GPU?
#
# **Question.** Nodes cost target time. When does the next one stop paying?
#
# **Data.** Published latency probes and masses (Lee and Eo, arXiv 2610.00321). Put your own probe, made by
# `castsim probe --out probe.json`, in the place of the name.

# %%
import matplotlib.pyplot as plt

from castsim.advice.acceptance import published
from castsim.advice.verdict import Question, answer
from castsim.costs.context import context_of
from castsim.costs.curve import require_cost
from castsim.costs.probefile import open_probe
from castsim.paper.table_2 import settings
from castsim.show.figures import figure_2
from castsim.show.plots import STYLE
from castsim.show.sources import Sources
from replay.width import Overhead

plt.style.use(STYLE)
plt.rcParams["figure.dpi"] = 70
PROBE, GRID = "blackwell-qwen3-8b", (15, 31, 47, 63, 95, 127)
probe = open_probe(PROBE)
context = context_of(probe.curve(), None, None, holds=False)
cost = require_cost(probe.curve(), context, 1, None, Overhead(), "least_squares")
masses = published("qwen3-8b-gsm8k", probe.target, probe.gpu, GRID[-1])
found = answer(Question(PROBE, probe, cost, GRID, context, 1, 0), masses)

# %% [markdown]
# ## The curve is not a line

# %%
frame = figure_2.table(Sources(None, open_probe("pair-cpu")))
figure, axes = plt.subplots(1, 2, figsize=(10, 3.8), layout="constrained")
figure_2.draw(frame, list(axes))
plt.show()
for cliff in found["cliffs"]:
    print(f"{PROBE}: {cliff['rise']:+.0%} from {cliff['below']} to {cliff['above']} packed tokens")

# %% [markdown]
# ## What each rule says

# %%
for rule in found["rules"]:
    print(f"{rule['rule']:22s} N* = {rule['budget']:3d}, on the grid {rule['deployed']}")
print(found["caveats"][0])

# %% [markdown]
# Theorem 2 fits one line and stops early: the cliff at the end tilts the line, and every node before the cliff pays for
# it. The measured rule reads the curve itself.

# %%
rows = found["widths"]
figure, axis = plt.subplots(figsize=(7, 3.6))
trees = [row for row in rows if row["policy"] == "topN"]
axis.plot([r["budget"] for r in trees], [100 * r["gain_over_chain"] for r in trees], "o-")
axis.axhline(0, color="0.7")
axis.set(
    xlabel="nodes N",
    ylabel="gain over the chain, %",
    title=f"{PROBE}, GSM8K: forecast",
    xticks=GRID,
)
plt.show()

# %% [markdown]
# ## All eight settings of the paper

# %%
for row in settings():
    gaps = "  ".join(
        f"{rule} {row[rule]['budget']:3d} ({row[rule]['gap']:+.1f})" for rule in ("published", "affine", "measured")
    )
    print(f"{row['gpu'] + ', ' + row['target']:34s} best {row['oracle']['budget']:3d}  {gaps}")

# %% [markdown]
# **What it says.** Read the curve, not a line through it. The gap, in points of gain, is what a rule leaves on the table
# against the best swept width.
