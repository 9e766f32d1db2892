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
# # Every published table, rebuilt or recomputed
#
# **Question.** Which printed numbers follow from the published measurements, and which do not?
#
# **Data.** The 17 tables of the paper as printed, and the probes, masses, sweeps and prompts behind them
# (`castsim/published`).

# %%
import matplotlib.pyplot as plt
import numpy as np
import polars as pl

from castsim.paper.every_table import rebuilt, within_rounding
from castsim.paper.forecast_tables import cells, summary
from castsim.paper.table_2 import domain_gains, settings
from castsim.paper.table_3 import prompt_gains
from castsim.published import frame
from castsim.show import printed
from castsim.show.plots import STYLE

plt.style.use(STYLE)
plt.rcParams["figure.dpi"] = 70
for number in printed.NUMBERS:
    table = printed.table(number)
    print(
        f"Table {number:2d}: {table.height:2d} rows, {table.width:2d} columns, {frame('tables').filter(table=number).height:3d} numbers"
    )

# %% [markdown]
# ## Cell by cell
#
# Each of the 1,001 printed numbers beside what the published sweeps, probes, masses and prompts give for it. Of several
# repeats the nearest is taken. `castsim figures` writes the whole list as `tables_rebuilt.csv`.

# %%
every = within_rounding(rebuilt())
for number in printed.NUMBERS:
    mine = every.filter(table=number)
    known = mine.filter(pl.col("recomputed").is_not_null())
    largest = known["difference"].abs().max()
    print(
        f"Table {number:2d}: {mine.height:3d} cells, {known.height:3d} recomputed, {known['same'].sum():3d} the same but for rounding"
        + ("" if largest is None else f", largest difference {largest:.3f}")
    )

# %%
for row in every.filter(~pl.col("same")).iter_rows(named=True):
    print(
        f"Table {row['table']}, {row['gpu']}, {row['target']}, {row['domain']}, {row['metric']}: printed {row['value']:g}, "
        f"recomputed {row['recomputed']:g}"
    )

# %% [markdown]
# ## Table 8: gains

# %%
differences = []
for row in frame("tables").filter(table=8, metric="gain_over_dflash").iter_rows(named=True):
    host = (
        "a6000-second-host" if (row["gpu"], row["budget"]) == ("A6000", 127) else row["gpu"].lower().replace(" ", "-")
    )
    mine = domain_gains(f"{host}-{row['target'].lower()}").filter(domain=row["domain"], budget=row["budget"])["gain"][0]
    differences.append(mine - row["value"])
print(f"Table 8: {len(differences)} gains, largest difference {np.abs(differences).max():.1f} points")

# %% [markdown]
# ## Table 2: widths

# %%
for row in settings():
    print(
        f"{row['gpu'] + ', ' + row['target']:34s} printed N* {row['published']['budget']:3d}, recomputed {row['affine']['stops_at']:3d}, "
        f"best swept {row['oracle']['budget']:3d}"
    )

# %% [markdown]
# ## Table 3: intervals over prompts

# %%
for row in prompt_gains():
    low, high = row["gain_ci95"]
    mean, printed_low, printed_high = row["printed"]
    print(
        f"{row['setting']:20s} {row['domain']:10s} {row['gain']:5.1f} [{low:.1f}, {high:.1f}], printed {mean} [{printed_low}, {printed_high}]"
    )

# %% [markdown]
# ## Tables 7, 8, 12, 16 and 17, forecast from the probes

# %%
found = cells()
for row in summary(found):
    unit = "points" if row["metric"] == "gain_over_dflash" else "%"
    print(
        f"Table {row['table']:2d} {row['metric']:18s} {row['cells']:3d} cells, median error {row['error_median']:.1f} {unit}, largest {row['error_max']:.1f}"
    )
figure, axis = plt.subplots(figsize=(7, 3.6))
for table in (12, 16, 17):
    mine = [c for c in found if c["table"] == table and c["error_unit"] == "%"]
    axis.plot([c["printed"] for c in mine], [c["error"] for c in mine], "o", alpha=0.6, label=f"Table {table}")
axis.axhline(0, color="0.7")
axis.set(
    xlabel="printed value (ms/token or times)",
    ylabel="error of the forecast, %",
    xscale="log",
    title="Forecast from probe and R",
)
axis.legend()
plt.show()

# %% [markdown]
# **What it says.** What is arithmetic on the published data comes out. The widths 63 and 95 on Blackwell do not. Tables 9,
# 10, 13, 14 and 15 hold measurements whose raw data are not published beside them; they are shown as printed.
