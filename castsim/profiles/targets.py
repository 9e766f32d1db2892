"""Published statistics that a profile is fitted to, by profile."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from castsim.published import frame, short

MASSES_AT = (1, 2, 3, 4, 6, 8, 12, 15, 16, 24, 32, 48, 64, 96, 127)
HOSTS = {"Blackwell": "R pooled", "H100 SXM": "R per prompt"}  # whose R is read as which mean, see below


@dataclass(frozen=True)
class Target:
    """A statistic that was published.

    Attributes:
        low, high: the printed value, or the ends of a printed range or of a printed value's rounding.
        aim: how far off it may be, relative for R and masses, absolute for shares.
        source: table or appendix.
    """

    low: float
    high: float
    aim: float
    source: str
    relative: bool = True

    def error(self, value: float) -> float:
        """Signed distance to the nearest end, 0 between them."""
        near = min(max(value, self.low), self.high)
        return value / near - 1 if self.relative else value - near


@dataclass(frozen=True)
class Published:
    """What is known of one profile.

    Attributes:
        depth_max: L.
        tokens: length of an output.
        masses: curve in masses.csv, or "".
        borrow: profile that what is not known is taken from, or "".
    """

    name: str
    targets: dict[str, Target]
    depth_max: int
    tokens: int
    borrow: str = ""


def published_profiles() -> dict[str, Published]:
    """All profiles that castsim ships, each before those that borrow from it."""
    found = [_decoded("Qwen/Qwen3-8B", domain, "") for domain in ("GSM8K", "MT-Bench", "HumanEval")]
    near = {"MATH-500": "GSM8K", "MBPP": "HumanEval"}
    found += [_decoded("Qwen/Qwen3-8B", d, f"qwen3-8b-{n.lower()}") for d, n in near.items()]
    for target in ("Qwen/Qwen3-4B", "meta-llama/Llama-3.1-8B-Instruct", "Qwen/Qwen3-Coder-30B-A3B-Instruct"):
        domains = frame("sweeps").filter(target=target, temperature=0.0)["domain"].unique(maintain_order=True)
        found += [_decoded(target, d, f"qwen3-8b-{near.get(d, d).lower()}") for d in domains]
    found += [_dart("GSM8K", 2.01, 1.191, 1.66, 2.81), _dart("HumanEval", 2.35, 1.145, 1.76, 3.15)]
    return {p.name: p for p in found}


def _decoded(target: str, domain: str, borrow: str) -> Published:
    """R of every sweep, and for Qwen3-8B what appendix G and Figure 4c add.

    R of the same prompts differs between the tables of H100 SXM and those of Blackwell and A6000 (MT-Bench 4.06 and
    3.13 for the chain of Qwen3-8B), and ms/token times R is as long as a round only in the latter. Read here: pooled
    over rounds on Blackwell, the mean of prompts' own means on H100 SXM.
    """
    rows = (
        frame("sweeps")
        .filter(pl.col("gpu").is_in(list(HOSTS)), target=target, domain=domain, temperature=0.0, run=1)
        .filter(pl.col("method") != "AR")
    )
    targets: dict[str, Target] = {}
    for row in rows.iter_rows(named=True):
        policy = "chain" if row["method"] == "DFlash" else "topN"
        name = f"{HOSTS[row['gpu']]}: {policy} {row['budget']}"
        targets[name] = Target(row["committed"], row["committed"], 0.02, f"sweep on {row['gpu']}")
    name = f"{short(target)}-{domain}".lower()
    if target == "Qwen/Qwen3-8B" and not borrow:
        targets |= _masses(name) | _appendix_g(domain)
    if name == "qwen3-4b-gsm8k":
        targets |= _rounds()
    first = rows.row(0, named=True)
    return Published(name, targets, first["depth_max"], first["new_tokens"], borrow)


def _masses(curve: str) -> dict[str, Target]:
    mass = frame("masses").filter(curve=curve)["mass"].to_list()
    return {f"mass: {n}": Target(mass[n - 1], mass[n - 1], 0.03, "Figure 4c") for n in MASSES_AT}


def _appendix_g(domain: str) -> dict[str, Target]:
    """Printed to one decimal, or as a range over the three domains."""
    schedule, binary, chain, tree, near = {
        "GSM8K": (3.7, 4.9, 6.3, 7.7, 0.77),
        "MT-Bench": (3.0, 3.2, 3.2, 4.3, 0.56),
        "HumanEval": (3.7, 4.8, 6.3, 7.7, 0.77),
    }[domain]
    replayed = {"schedule 47": schedule, "binary 47": binary, "chain 15": chain, "topN 47": tree}
    found = {
        f"R on chain rounds: {key}": Target(value - 0.05, value + 0.05, 0.02, "appendix G")
        for key, value in replayed.items()
    }
    shares = {
        "first rejection, ranks: 2-4": (near - 0.005, near + 0.005, "appendix G"),
        "first rejection, ranks: 5-8": (0.11, 0.14, "appendix G"),
        "first rejection, ranks: 33-": (0.02, 0.11, "appendix G"),
        "true token beyond rank: 8": (0.095, 0.152, "appendix G.1"),
        "hit rate at depth 1: 0.9-1.0": (0.98, 0.99, "appendix G"),
        "hit rate at depth 1: 0.6-0.7": (0.66, 0.77, "appendix G"),
    }
    return found | {key: Target(*ends, 0.05, source, relative=False) for key, (*ends, source) in shares.items()}


def _rounds() -> dict[str, Target]:
    """How R spreads in 4,045 live rounds with a best-first tree of 128 nodes; 3,711 pairs of neighbours."""
    source, rows = "hxri/ddtreeplus, runs/rl_tree", frame("committed")
    total = int(rows["rounds"].sum())
    shares = {f"share of R = {r}": n / total for r, n in rows.iter_rows()} | {"correlation of neighbours": 0.276}
    found = {f"topN 128 rounds: {key}": Target(v, v, 0.02, source, relative=False) for key, v in shares.items()}
    return {**found, "topN 128 rounds: standard deviation of R": Target(4.586, 4.586, 0.05, source)}


def _dart(domain: str, chain: float, same: float, first: float, last: float) -> Published:
    """Appendix G.2: a round at every position of greedy decodes, L = 8."""
    values = {"chain 8": chain, "topN 8": chain * same, "topN 1": first, "topN 63": last}
    targets = {
        f"R at every position: {key}": Target(v - 0.005, v + 0.005, 0.02, "appendix G.2") for key, v in values.items()
    }
    return Published(f"dart-qwen3-8b-{domain}".lower(), targets, 8, 128, f"qwen3-8b-{domain.lower()}")
