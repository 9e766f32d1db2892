"""What live decodes say, beside what the replay of a log of the same prompts said before: rows of `castsim live`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from castsim.advice.forecast import PARTS, RoundCost
from castsim.scoring.policies import Choice
from replay.bootstrap import paired_bootstrap

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Method:
    """One way to decode: autoregressive, or a policy at a budget.

    Attributes:
        choice: None is AR.
    """

    choice: Choice | None
    budget: int = 0

    @property
    def name(self) -> str:
        """What the table calls it."""
        return "AR" if self.choice is None else self.choice.kind.name


@dataclass(frozen=True)
class Decode:
    """One prompt, decoded once.

    Attributes:
        method, prompt: places in the lists of the run.
        repeat: 0 is the profiled pass, whose rounds are timed by part; its window is not used.
        output: ids, the end of sequence included. The first is prefill's.
        window_ms: from just before the first verification to the end of the output (appendix D).
        committed, packed: tokens that each round emitted, and rows that the target read for it.
        parts_ms: (rounds, 6) of the profiled pass, in the order of `PARTS`; else empty.
    """

    method: int
    prompt: int
    repeat: int
    finish: str
    output: tuple[int, ...]
    window_ms: float
    committed: tuple[int, ...]
    packed: tuple[int, ...]
    parts_ms: tuple[tuple[float, ...], ...] = ()


@dataclass(frozen=True)
class Walked:
    """What the replay says of one method: committed tokens of each round, prompt by prompt.

    Attributes:
        rounds: of each prompt, the committed tokens of its rounds.
        packed: mean rows of the target, the root included; None without rounds.
        interval: of pooled R over prompts, or None for a single one.
    """

    rounds: tuple[tuple[int, ...], ...]
    packed: float | None
    interval: tuple[float, float] | None


def live_rows(
    methods: Sequence[Method], decodes: Sequence[Decode], walked: Sequence[Walked | None], seed: int = 0
) -> list[dict[str, Any]]:
    """One dict a method: live figures, and beside them what was said before. A missing baseline leaves its key out."""
    costs = [_cost(decodes, m) for m in range(len(methods))]
    times, tokens = _times(methods, decodes)  # (P, C) each
    forecast = [_forecast(costs[m], walked[m], tokens[:, m]) for m in range(len(methods))]
    rows: list[dict[str, Any]] = []
    for m, method in enumerate(methods):
        timed = [d for d in decodes if d.method == m and d.repeat > 0]
        committed = [r for d in timed for r in d.committed]
        row: dict[str, Any] = {
            "method": method.name,
            "options": {} if method.choice is None else method.choice.all_options,
            "budget": method.budget,
            "tokens": int(tokens[:, m].sum()),
            "rounds": sum(len(d.committed) for d in timed if d.repeat == 1),
            "ms_per_token": _ratio(times[:, m].sum(), tokens[:, m].sum()),
            "ms_per_token_forecast": forecast[m],
            "committed_pooled": _ratio(sum(committed), len(committed)),
            "packed": _ratio(sum(r for d in timed for r in d.packed), len(committed)),
            "shares": _shares(decodes, m),
            "round_ms": None if costs[m] is None else costs[m].round_ms,
        }
        row |= _beside_replay(walked[m], [d for d in timed if d.repeat == 1])
        rows.append(row)
    _compare(rows, methods, decodes, times, tokens, seed)
    return rows


def _times(methods: Sequence[Method], decodes: Sequence[Decode]) -> tuple[Array, Array]:
    """Window and emitted tokens of each prompt and method (P, C); the median over repeats."""
    prompts = 1 + max(d.prompt for d in decodes)
    windows: dict[tuple[int, int], list[float]] = {}
    tokens = np.zeros((prompts, len(methods)))
    for d in decodes:
        if d.repeat > 0:
            windows.setdefault((d.prompt, d.method), []).append(d.window_ms)
            tokens[d.prompt, d.method] = sum(d.committed)
    times = np.zeros_like(tokens)
    for place, values in windows.items():
        times[place] = float(np.median(values))
    return times, tokens


def _cost(decodes: Sequence[Decode], method: int) -> RoundCost | None:
    """Medians of the profiled rounds of a method; None where it had none."""
    parts = [p for d in decodes if d.method == method and d.repeat == 0 for p in d.parts_ms]
    if not parts:
        return None
    draft, build, pack, target, walk, commit = np.median(parts, axis=0).tolist()
    return RoundCost(draft, build + pack, target, walk + commit)


def _shares(decodes: Sequence[Decode], method: int) -> dict[str, float]:
    """Share of the profiled rounds' time in each part."""
    parts = [p for d in decodes if d.method == method and d.repeat == 0 for p in d.parts_ms]
    total = np.sum(parts, axis=0) if parts else np.zeros(len(PARTS))
    return {name: _ratio(part, total.sum()) for name, part in zip(PARTS, total.tolist(), strict=True)}


def _forecast(cost: RoundCost | None, walked: Walked | None, tokens: Array) -> float | None:
    if cost is None:
        return None
    if walked is None:  # AR: a round a token
        return cost.ms_per_token(int(tokens.sum()), int(tokens.sum()), int((tokens > 0).sum()))
    rounds, emitted = sum(map(len, walked.rounds)), sum(map(sum, walked.rounds))
    return cost.ms_per_token(rounds, emitted, sum(map(bool, walked.rounds))) if emitted else None


def _beside_replay(walked: Walked | None, decodes: Sequence[Decode]) -> dict[str, Any]:
    """What the replay said, and whether every round committed what it said."""
    if walked is None:
        return {}
    same = [tuple(walked.rounds[d.prompt]) == d.committed for d in decodes]
    return {
        "committed_pooled_replay": _ratio(sum(map(sum, walked.rounds)), sum(map(len, walked.rounds))),
        "committed_pooled_replay_ci95": walked.interval,
        "packed_replay": walked.packed,
        "prompts_equal_to_replay": sum(same),
    }


def _compare(
    rows: list[dict[str, Any]],
    methods: Sequence[Method],
    decodes: Sequence[Decode],
    times: Array,
    tokens: Array,
    seed: int,
) -> None:
    """Add speedup over AR and gain over the chain, with paired intervals, and how many outputs equal AR's."""
    names = [method.name for method in methods]
    for key, name, less in (("speedup_over_ar", "AR", 0.0), ("gain_over_chain", "chain", 1.0)):
        if name not in names:
            continue
        base = names.index(name)

        def gain(weight: Array, base: int = base, less: float = less) -> Array:
            """(D, C) ms/token of the baseline over that of each method."""
            pace = (weight @ times) / (weight @ tokens)
            return pace[:, base : base + 1] / pace - less

        with np.errstate(all="ignore"):
            point = gain(np.ones((1, len(times))))[0]
            interval = paired_bootstrap(gain, len(times), rng=np.random.default_rng(seed))
        said = rows[base]["ms_per_token_forecast"]
        for c, row in enumerate(rows):
            told = row["ms_per_token_forecast"]
            row[key] = _number(point[c])
            row[f"{key}_ci95"] = [float(v) for v in interval[:, c]] if np.isfinite(interval[:, c]).all() else None
            row[f"{key}_forecast"] = said / told - less if said and told else None
    if "AR" in names:
        _outputs_beside_ar(rows, names.index("AR"), decodes)


def _outputs_beside_ar(rows: list[dict[str, Any]], base: int, decodes: Sequence[Decode]) -> None:
    first = {(d.method, d.prompt): d.output for d in decodes if d.repeat == 1}
    prompts = {prompt for _, prompt in first}
    for c, row in enumerate(rows):
        row["prompts_equal_to_ar"] = sum(first[c, p] == first[base, p] for p in prompts)


def _ratio(part: float, whole: float) -> float | None:
    return float(part / whole) if whole else None


def _number(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
