"""A profile's fresh rounds beside the published figures."""

from __future__ import annotations

from typing import Any

import numpy as np

from castsim.profiles.model import RANKS, draw, split_tables
from castsim.profiles.profile import Profile
from castsim.profiles.search import Effort, checked, drawn
from castsim.profiles.targets import Target, published_profiles
from replay.accept import accepted, rank_entry_budgets

CAP_BUDGETS = {32: (0.0, 0.005), 63: (0.0, 0.011)}  # appendix G.1: largest loss of R by the cap of 8
CAP_ROWS = 4096  # 64 ranks are slow to search


def report(profile: Profile, rows: int, seed: int) -> dict[str, Any]:
    """Statistics of fresh draws beside their targets, and what the rank cap costs beside appendix G.1."""
    published = published_profiles().get(profile.name)
    targets = _targets(profile) if published is None else published.targets
    effort = Effort(rows // 2, 1, seed)
    found = checked(profile.model(), targets, profile.depth_max, profile.tokens, effort)
    if profile.name.startswith("qwen3-8b-") and profile.borrowed_from is None:
        found += _rank_cap(profile, seed)
    return {
        "name": profile.name,
        "source": profile.source,
        "borrowed_from": profile.borrowed_from,
        "fitted": profile.fitted,
        "statistics": found,
        "held_out": profile.held_out,
    }


def _targets(profile: Profile) -> dict[str, Target]:
    """Those that a profile was fitted to, from its own file."""
    return {
        row["statistic"]: Target(row["low"], row["high"], row["aim"], row["source"], not _is_share(row["statistic"]))
        for row in profile.statistics
    }


def _is_share(name: str) -> bool:
    return not name.startswith(("R ", "mass", "topN 128 rounds: standard"))


def _rank_cap(profile: Profile, seed: int) -> list[dict[str, Any]]:
    """Loss of R on the chain's rounds when ranks beyond 8 are left out of 64."""
    model, splits = profile.model(), split_tables(profile.model(), profile.depth_max)
    sample = drawn(model, profile.depth_max, profile.tokens, CAP_ROWS, seed)
    roots = profile.tokens - 1
    prompts = len(sample) // roots
    parts = [draw(model, i, roots, profile.depth_max, RANKS, seed, splits) for i in range(prompts)]
    logq, rank = np.concatenate([p.logq for p in parts]), np.concatenate([p.rank for p in parts])
    own = sample.chain_rounds
    rows = []
    for budget, (low, high) in CAP_BUDGETS.items():
        whole, capped = (
            1 + accepted(rank_entry_budgets(logq[own, :, :cap], rank[own], budget=budget), [budget]).mean()
            for cap in (RANKS, 8)
        )
        target = Target(low, high, 0.005, "appendix G.1", relative=False)
        loss = float(1 - capped / whole)
        rows.append(
            {
                "statistic": f"loss of R by the rank cap: {budget}",
                "low": low,
                "high": high,
                "source": "appendix G.1",
                "simulated": loss,
                "error": target.error(loss),
                "aim": target.aim,
                "within": abs(target.error(loss)) <= target.aim,
            }
        )
    return rows
