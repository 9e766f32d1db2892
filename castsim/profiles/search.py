"""Fits a model's parameters to statistics, and says how far off each of them stays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from castsim.profiles.model import Model
from castsim.profiles.statistics import Sample, drawn_sample, statistics
from castsim.profiles.targets import Target

Array = NDArray[np.float64]
FIT_RANGES: dict[str, tuple[float, float]] = {
    "level": (-2.0, 6.0),
    "between": (0.0, 3.0),
    "spread": (0.0, 3.5),
    "memory": (0.5, 0.99),
    "noise": (0.0, 4.5),
    "decay": (0.0, 1.5),
    "bend": (0.02, 2.0),
    "tail": (0.5, 5.0),
    "tail_spread": (0.0, 1.5),
    "link": (-0.5, 0.95),
    "fade": (-0.5, 2.0),
    "sure": (0.0, 0.5),
    "sharp": (0.5, 1.8),
    "shift": (-1.5, 2.0),
    "off": (-0.5, 4.0),
    "common": (0.0, 1.0),
    "tilt": (0.4, 2.5),
    "focus": (0.0, 1.5),
    "lost": (0.0, 0.6),
}
BORROWED = ("level", "between", "decay", "sharp", "shift", "off")  # what is fitted where the rest is borrowed
DIFFERENCE = 0.03  # of a range, for derivatives
DAMPING = 0.3  # of a typical column of the Jacobian, falling by a tenth a step
CHECK_SEED = 1000  # beside a fit's own
LONGEST = 0.2  # of a range, in one step


@dataclass(frozen=True)
class Effort:
    """How much is simulated, and how long is searched.

    Attributes:
        rows: rounds of a step's draws; a check draws twice as many.
        steps: of a fit; a cross-validation takes half as many for each part.
        seed: of the first step's draws, each step has its own.
    """

    rows: int = 32_768
    steps: int = 8
    seed: int = 1


def fit(
    targets: dict[str, Target],
    start: Model,
    free: Sequence[str],
    depth_max: int,
    tokens: int,
    effort: Effort,
    done: Callable[[float], None] = lambda _: None,
) -> Model:
    """Least squares of the statistics' errors, in units of their aims, by damped Gauss-Newton steps within bounds.

    Every step draws anew, so that no set of draws is fitted, and derivatives are differences on the same draws; the
    result is the mean of the last half of the steps, where they have settled.
    """
    from scipy.optimize import lsq_linear

    low, high = (np.array([FIT_RANGES[name][i] for name in free]) for i in (0, 1))
    place = np.clip((np.array([getattr(start, name) for name in free]) - low) / (high - low), 0, 1)

    def model_at(place: Array) -> Model:
        values = (low + np.clip(place, 0, 1) * (high - low)).tolist()
        return replace(start, **dict(zip(free, values, strict=True)))

    def errors(place: Array, step: int) -> Array:
        return _errors(drawn(model_at(place), depth_max, tokens, effort.rows, effort.seed + step), targets)

    trail = []
    for step in range(effort.steps):
        now, slopes = errors(place, step), []
        for i in range(len(free)):
            done((step + i / len(free)) / effort.steps)
            away = DIFFERENCE if place[i] + DIFFERENCE <= 1 else -DIFFERENCE
            slopes.append((errors(place + away * np.eye(len(free))[i], step) - now) / away)
        jacobian = np.array(slopes).T
        damping = DAMPING * 0.9**step * np.sqrt((jacobian**2).sum(axis=0).mean())
        system = np.vstack([jacobian, damping * np.eye(len(free))])
        room = np.maximum(-place - 1e-9, -LONGEST), np.minimum(1 - place + 1e-9, LONGEST)
        move = lsq_linear(system, np.concatenate([-now, np.zeros(len(free))]), bounds=room).x
        tried = [np.clip(place + share * move, 0, 1) for share in (1.0, 0.5, 0.2)]
        place = min([*tried, place], key=lambda p: float((errors(p, step) ** 2).sum()))  # on the same draws
        trail.append(place)
    return model_at(np.mean(trail[-max(1, effort.steps // 2) :], axis=0))


def drawn(model: Model, depth_max: int, tokens: int, rows: int, seed: int) -> Sample:
    """About so many rows of whole outputs, an even number of them."""
    return drawn_sample(model, 2 * max(1, round(rows / (tokens - 1) / 2)), tokens, depth_max, seed)


def _errors(sample: Sample, targets: dict[str, Target]) -> Array:
    values = statistics(sample, targets)
    errors = np.array([t.error(values[name]) for name, t in targets.items()])
    relative = np.array([t.relative for t in targets.values()])
    return np.where(relative, np.log1p(np.where(relative, errors, 0)), errors) / [t.aim for t in targets.values()]


def checked(
    model: Model, targets: dict[str, Target], depth_max: int, tokens: int, effort: Effort
) -> list[dict[str, Any]]:
    """Every statistic of fresh draws beside its target."""
    sample = drawn(model, depth_max, tokens, 2 * effort.rows, effort.seed + CHECK_SEED)
    values = statistics(sample, targets)
    return [
        {
            "statistic": name,
            "low": t.low,
            "high": t.high,
            "source": t.source,
            "simulated": values[name],
            "error": t.error(values[name]),
            "aim": t.aim,
            "within": bool(abs(t.error(values[name])) <= t.aim),
        }
        for name, t in targets.items()
    ]


def folds(names: Sequence[str], count: int) -> list[list[str]]:
    """Statistics held out in turn: every count-th one."""
    return [list(names[i::count]) for i in range(count)]


def cross_validated(
    targets: dict[str, Target],
    start: Model,
    free: Sequence[str],
    depth_max: int,
    tokens: int,
    effort: Effort,
    count: int = 2,
) -> list[dict[str, Any]]:
    """The errors of statistics that a fit did not see, each held out once."""
    rows, less = [], replace(effort, steps=max(1, effort.steps // 2))
    for held in folds(list(targets), count):
        seen = {name: t for name, t in targets.items() if name not in held}
        model = fit(seen, start, free, depth_max, tokens, less)
        rows += checked(model, {name: targets[name] for name in held}, depth_max, tokens, effort)
    return rows


def parameters(model: Model) -> dict[str, float]:
    """By name, rounded to what a fit can tell."""
    return {name: round(value, 5) for name, value in asdict(model).items()}
