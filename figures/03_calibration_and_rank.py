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
# # Can the drafter's probabilities be trusted?
#
# **Question.** The tree is built from the drafter's own products. Are they what they claim to be, and are eight ranks
# enough?
#
# **Data.** The sample run, on the rounds that the chain plays, beside what the paper prints of Qwen3-8B.

# %%
import matplotlib.pyplot as plt
import numpy as np

from castsim.costs.probefile import open_probe
from castsim.runs.reading import open_run
from castsim.runs.sample import sample_run
from castsim.scoring.calibrate import rank_cap_loss
from castsim.show.figures import figure_4
from castsim.show.plots import STYLE
from castsim.show.sources import Sources
from replay.calibrate import OFF, ON

plt.style.use(STYLE)
plt.rcParams["figure.dpi"] = 70
sources = Sources(open_run(sample_run()), open_probe("pair-cpu"))
frame = figure_4.table(sources)
figure, axes = plt.subplots(1, 3, figsize=(12, 3.8), layout="constrained")
figure_4.draw(frame, list(axes))
plt.show()

# %% [markdown]
# ## On the top-1 path and off it
#
# Candidates whose ancestors are all top-1 choices are one population, the others another: the drafter planned its block
# for the path that it thought likeliest.

# %%
whole = sources.diagnoses["all"].reliability
error = whole.calibration_error()
for side, name in ((ON, "on the spine"), (OFF, "off the spine")):
    shown = ", ".join(f"{e:.3f}" for e in error[side, 1:6] if np.isfinite(e))
    print(f"{name}: expected calibration error at depths 2 to 6: {shown}")

# %% [markdown]
# ## Does the cap of eight ranks cost anything?

# %%
for row in rank_cap_loss(sources.run, None, sources.domains, 8, lambda _: None):
    if row["domain"] == "all":
        print(
            f"N = {row['budget']}: R {row['committed_pooled_capped']:.3f} with 8 ranks, "
            f"{row['committed_pooled_uncapped']:.3f} with {row['ranks_kept']}, loss {row['loss']:+.2%}"
        )

# %% [markdown]
# **What it says.** At depth 1 the embedded drafter is underconfident in the middle, as the published one is; deeper and
# off the spine it is worse; and eight ranks are enough for both.
