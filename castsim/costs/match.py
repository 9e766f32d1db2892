"""Whether a run and a probe are of one deployment: what differs is told, or refused where the user is strict."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from castsim.base.errors import OptionError
from castsim.costs.probefile import Probe
from castsim.runs.manifest import Facts

KINDS = ("dart", "dflash", "eagle3", "eagle", "medusa", "mtp")  # as names of heads spell them
PROCESSOR = "cpu"  # a run on one does not name it, a probe does
CPU_NAMES = r"\bcpu\b|threads|xeon|epyc|ryzen|\bcore\b|processor|neoverse"


@dataclass(frozen=True)
class Deployment:
    """What rounds or times were measured with; None is unknown.

    Attributes:
        kind: of the drafter, as `KINDS`.
        block: L + 1, the root included.
    """

    target: str | None = None
    drafter: str | None = None
    kind: str | None = None
    block: int | None = None
    dtype: str | None = None
    device: str | None = None


UNKNOWN = Deployment()


def of_facts(facts: Facts) -> Deployment:
    """A run's."""
    kind = facts.drafter_kind or kind_of(facts.drafter)
    return Deployment(facts.target, facts.drafter, kind, facts.depth_max + 1, facts.dtype, facts.device)


def of_probe(probe: Probe) -> Deployment:
    """A probe's."""
    kind = probe.drafter_kind or kind_of(probe.drafter)
    block = None if probe.depth_max is None else probe.depth_max + 1
    return Deployment(probe.target, probe.drafter, kind, block, probe.dtype, probe.device)


def kind_of(drafter: str | None) -> str | None:
    """The kind that a head's name tells, for runs and probes that were made before kinds were written down."""
    name = (drafter or "").lower()
    return next((kind for kind in KINDS if kind in name), None)


def differences(run: Deployment, probe: Deployment) -> list[dict[str, Any]]:
    """What both know and do not agree on."""
    pairs = {
        "target": (_model(run.target), _model(probe.target)),
        "drafter kind": (run.kind, probe.kind),
        "block size": (run.block, probe.block),
        "dtype": (_dtype(run.dtype), _dtype(probe.dtype)),
        "device": _devices(run.device, probe.device),
    }
    return [
        {"field": field, "run": mine, "probe": theirs}
        for field, (mine, theirs) in pairs.items()
        if None not in (mine, theirs) and mine != theirs
    ]


def told(found: list[dict[str, Any]], strict: bool) -> list[str]:
    """The warning, one line or none.

    Raises:
        OptionError: something differs, and the user is strict.
    """
    if not found:
        return []
    words = "; ".join(f"{d['field']} {d['run']} and {d['probe']}" for d in found)
    if strict:
        raise OptionError(f"--strict: run and probe differ in {words}; name a probe of the run's own deployment")
    return [f"Warning: run and probe differ in {words}."]


def _model(name: str | None) -> str | None:
    """A model's name without its folder or owner, in lower case."""
    return None if name is None else re.split(r"[/\\]", name.rstrip("/\\"))[-1].lower()


def _dtype(name: str | None) -> str | None:
    plain = (name or "").lower().removeprefix("torch.")
    short = {"bf16": "bfloat16", "fp16": "float16", "half": "float16", "fp32": "float32", "float": "float32"}
    return short.get(plain, plain) or None


def _devices(run: str | None, probe: str | None) -> tuple[str | None, str | None]:
    """Both devices, under one name where one side only says less: cuda, or H100 for NVIDIA H100 80GB HBM3."""
    if run is None or probe is None:
        return None, None
    mine, theirs = (PROCESSOR if re.search(CPU_NAMES, name.lower()) else _plain(name) for name in (run, probe))
    says_less = set(mine.split()) <= set(theirs.split()) or set(theirs.split()) <= set(mine.split())
    vague = "cuda" in (mine, theirs) and PROCESSOR not in (mine, theirs)
    return (theirs, theirs) if says_less or vague else (mine, theirs)


def _plain(name: str) -> str:
    """A GPU's name without its maker, brackets and number: cuda:1 is cuda."""
    return " ".join(re.sub(r"\bnvidia\b|\bamd\b|\(.*?\)|:\d+$", " ", name.lower()).split())
