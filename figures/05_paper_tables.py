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

from castsim.plots import STYLE, printed
from castsim.published import frame, short
from castsim.published.forecasts import cells, summary
from castsim.published.intervals import prompt_gains
from castsim.published.widths import domain_gains, settings

plt.style.use(STYLE)
plt.rcParams["figure.dpi"] = 70
for number in printed.NUMBERS:
    table = printed.table(number)
    print(
        f"Table {number:2d}: {table.height:2d} rows, {table.width:2d} columns, {frame('tables').filter(table=number).height:3d} numbers"
    )

# %% [markdown]
# ## Cells that are the sweeps' own
#
# Times, R and speedups of Tables 1, 4, 7, 12, 16 and 17, found again in the repeats of the sweeps: a cell is *rebuilt* if
# some repeat rounds to it.

# %%
sweeps = frame("sweeps").with_columns(pl.col("target").map_elements(short, return_dtype=pl.String))
names = {"decode_time": "ms_per_token", "committed_round_length_R": "committed"}
for number in (1, 4, 7, 12, 16, 17):
    rows = frame("tables").filter(
        pl.col("table") == number,
        pl.col("metric").is_in(list(names)),
        pl.col("domain") != "average",
        pl.col("method") != "EAGLE-3",
    )
    rebuilt = 0
    for row in rows.iter_rows(named=True):
        mine = sweeps.filter(
            pl.col("gpu") == row["gpu"],
            pl.col("target") == row["target"],
            pl.col("domain") == row["domain"],
            pl.col("method") == row["method"],
            pl.col("temperature") == (row["temperature"] or 0),
        )
        if row["budget"] is not None:
            mine = mine.filter(budget=row["budget"])
        digits = len(str(row["value"]).partition(".")[2])
        rebuilt += any(abs(v - row["value"]) <= 0.51 * 10.0**-digits for v in mine[names[row["metric"]]].to_list())
    print(f"Table {number:2d}: {rebuilt} of {rows.height} times and R rebuilt")

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
