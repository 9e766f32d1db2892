"""Every printed number of the 17 tables, beside what the published measurements give for it, where they give it.

Not rebuilt, because nothing is published behind them: EAGLE-3 rows, the sampled rows of Tables 3 and 10, Table 11, and
of Tables 14 and 15 all but what other tables hold too; Table 15's times are of runs of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import polars as pl

from castsim.costs.probefile import open_probe
from castsim.paper.table_2 import settings
from castsim.paper.table_3 import prompt_gains
from castsim.published import frame, short

PREFIXES = {"1k": 1024, "4k": 4096, "8k": 8192, "16k": 16384}
OWN_RUNS = 15
Row = dict[str, Any]


def rebuilt() -> pl.DataFrame:
    """The columns of tables.csv with `recomputed`, `difference` and `how`; null where no published data are behind it.

    Of several repeats the one nearest to the cell is taken: which one is printed follows a rule of appendix D, and the
    gains of Table 8 are held against that rule elsewhere.
    """
    rows = frame("tables").to_dicts()
    found = [_recomputed(row, rows) for row in rows]
    return (
        frame("tables")
        .with_columns(
            pl.Series("recomputed", [value for value, _ in found], dtype=pl.Float64),
            pl.Series("how", [how for _, how in found], dtype=pl.String),
        )
        .with_columns(difference=pl.col("recomputed") - pl.col("value"))
    )


def _recomputed(row: Row, rows: list[Row]) -> tuple[float | None, str | None]:
    by_metric: dict[str, tuple[Callable[[Row], list[float]], str]] = {
        "decode_time": (_times, "sweep"),
        "committed_round_length_R": (_rounds, "sweep"),
        "speedup_over_ar": (_speedups, "sweep"),
        "gain_over_dflash": (_gains, "sweep"),
        "target_forward_latency": (_latency, "probe"),
        "target_forward_slope_n16_to_n128": (_slope, "probe"),
    }
    if row["domain"] == "average" and row["metric"] in by_metric:
        return _average(row, rows)
    if row["table"] == 2:
        return _table_2(row), "sweep"
    if row["metric"].startswith("mean_prompt_gain"):
        return _table_3(row), "prompts"
    if row["metric"] not in by_metric or row["method"] == "EAGLE-3":
        return None, None
    make, how = by_metric[row["metric"]]
    values = make(row)
    return (min(values, key=lambda v: abs(v - row["value"])), how) if values else (None, None)


def _average(row: Row, rows: list[Row]) -> tuple[float | None, str | None]:
    """The mean of the domains' cells that the same table prints."""
    keys = ("table", "gpu", "target", "drafter", "method", "budget", "packed", "temperature", "metric")
    same = [r for r in rows if r["domain"] != "average" and all(r[k] == row[k] for k in keys)]
    parts = [_recomputed(r, rows)[0] for r in same]
    known = [p for p in parts if p is not None]
    return (float(np.mean(known)), "mean of domains") if known and len(known) == len(parts) else (None, None)


@cache
def _sweeps() -> dict[tuple[Any, ...], list[Row]]:
    """Rows of the sweeps by GPU, target, domain and temperature, then by setting and run."""
    found: dict[tuple[Any, ...], list[Row]] = {}
    for row in frame("sweeps").iter_rows(named=True):
        found.setdefault((row["gpu"], short(row["target"]), row["domain"], row["temperature"]), []).append(row)
    return found


def _of_cell(row: Row) -> list[Row]:
    """The repeats of a cell's method and budget; a block of another length is another drafter."""
    if row["drafter"] not in (None, "DFlash-b16", "DFlash-b10") or row["prefix"] not in (None, "1k"):
        return []
    mine = _sweeps().get((row["gpu"], row["target"], row["domain"], row["temperature"] or 0.0), [])
    if row["new_tokens"] is not None:
        mine = [r for r in mine if r["new_tokens"] == row["new_tokens"]]
    budget = row["budget"]
    return [r for r in mine if r["method"] == row["method"] and (budget is None or r["budget"] == budget)]


def _times(row: Row) -> list[float]:
    return [] if row["table"] == OWN_RUNS else [r["ms_per_token"] for r in _of_cell(row)]


def _rounds(row: Row) -> list[float]:
    return [r["committed"] for r in _of_cell(row)]


def _beside(row: Row, method: str) -> list[tuple[float, float]]:
    """(baseline, own) ms/token of each repeat."""
    pairs = []
    for own in _of_cell(row):
        base = [
            r["ms_per_token"]
            for r in _sweeps()[own["gpu"], short(own["target"]), own["domain"], own["temperature"]]
            if (r["setting"], r["run"], r["method"]) == (own["setting"], own["run"], method)
        ]
        pairs += [(b, own["ms_per_token"]) for b in base]
    return pairs


def _speedups(row: Row) -> list[float]:
    return [ar / ms for ar, ms in _beside(row, "AR")]


def _gains(row: Row) -> list[float]:
    gains = [100 * (chain / ms - 1) for chain, ms in _beside(row, "DFlash")]
    return [*gains, float(np.median(gains))] if gains else []


def _latency(row: Row) -> list[float]:
    known = frame("probes").filter(
        gpu=row["gpu"], prefix=PREFIXES[row["prefix"] or "1k"], packed=row["packed"], table=str(row["table"])
    )
    return [r["ms"] for r in known.iter_rows(named=True) if short(r["target"]) == row["target"]]


def _slope(row: Row) -> list[float]:
    names = {"Qwen3-8B": "qwen3-8b-prefixes", "Qwen3-4B": "qwen3-4b-prefixes", "LLaMA-3.1-8B": "llama-3.1-8b"}
    curve = open_probe(f"h100-sxm-{names[row['target']]}").curve().at(PREFIXES[row["prefix"]])
    return [curve.slope("endpoints")]


@cache
def _settings() -> dict[tuple[str, str], dict[str, Any]]:
    return {(row["gpu"], row["target"]): row for row in settings()}


def _table_2(row: Row) -> float | None:
    """Widths and gains by the published rule and by the sweep; the rule's own answer is `castsim width --published`."""
    mine = _settings()[row["gpu"], row["target"]]
    value = {
        "oracle_width": mine["oracle"]["budget"],
        "gain_over_dflash_at_oracle_width": mine["oracle"]["gain"],
        "gain_over_dflash_at_predicted_width": mine["published"]["gain"],
        "gap_predicted_minus_oracle": mine["published"]["gap"],
        "predicted_width": mine["affine"]["budget"],
    }.get(row["metric"])
    return None if value is None else float(value)


@cache
def _prompts() -> dict[tuple[str, str], list[float]]:
    found = {}
    for row in prompt_gains():
        target = "Qwen3-8B" if "8b" in row["setting"] else "Qwen3-4B"
        found[target, row["domain"]] = [row["gain"], *row["gain_ci95"]]
    return found


def _table_3(row: Row) -> float:
    place = ["mean_prompt_gain_over_dflash", "mean_prompt_gain_ci95_low", "mean_prompt_gain_ci95_high"]
    return _prompts()[row["target"], row["domain"]][place.index(row["metric"])]


def within_rounding(found: pl.DataFrame) -> pl.DataFrame:
    """The frame of `rebuilt` with `same`: the recomputed value is the printed one but for rounding.

    Ends of bootstrap intervals may move by 0.1, as the random stream does.
    """
    digits = [len(str(v).partition(".")[2].rstrip("0") or "") for v in found["value"]]
    # a printed 3.60 is kept as 3.6: at least the digits that the column has elsewhere
    most = found.with_columns(pl.Series("digits", digits)).select(
        pl.col("digits").max().over("table", "metric", "method")
    )
    slack = 0.51 * 10.0 ** -most.to_series().cast(pl.Float64)
    slack = pl.Series("slack", np.where(found["metric"].str.contains("ci95"), 0.15, slack.to_numpy()))
    return found.with_columns(same=found["difference"].abs() <= slack)
