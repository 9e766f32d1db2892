"""Profiles from published statistics and from recorded runs: what is fitted, from where it starts, and what is kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict

import numpy as np

from castsim.base.errors import OptionError
from castsim.base.workers import Workers
from castsim.profiles.model import Model
from castsim.profiles.profile import Profile
from castsim.profiles.search import BORROWED, FIT_RANGES, Effort, checked, cross_validated, fit, parameters
from castsim.profiles.statistics import LARGEST, RANK_CAP, recorded_sample, statistics
from castsim.profiles.targets import MASSES_AT, Published, Target, published_profiles
from castsim.published import CREDIT
from castsim.runs.reading import Run
from replay import Rounds
from replay.rounds import Marginals

Progress = Callable[[float], None]
WIDTHS = (15, 31, 47, 63, 95, 127)
OTHER_DRAFTER = ("noise", "sure", "tilt")
STARTS = {  # of a search, where the default is far off: a domain of hard text whose prompts differ
    "qwen3-8b-mt-bench": Model(
        level=1.0, between=1.0, spread=1.2, memory=0.97, noise=1.5, decay=0.8, bend=0.2, tail=1.2, sharp=1.2, shift=0.6
    )
}


def fitted_published(
    names: Sequence[str], known: dict[str, Profile], effort: Effort, jobs: int, done: Progress
) -> Iterator[Profile]:
    """Profiles of published statistics, those first that others borrow from.

    Args:
        names: of `castsim.profiles.targets.published_profiles`.
        known: profiles that can be borrowed from without being fitted again.

    Raises:
        OptionError: an unknown name, or one whose lender is neither known nor fitted.
    """
    wanted = published_profiles()
    for name in names:
        if name not in wanted:
            raise OptionError(f"--published {name}: there are {', '.join(wanted)}, or all")
        lender = wanted[name].borrow
        if lender and lender not in known and lender not in names:
            raise OptionError(f"--published {name}: borrows from {lender}; fit that as well")
    count = 0
    for stage in ([n for n in names if not wanted[n].borrow], [n for n in names if wanted[n].borrow]):
        fits = [(wanted[n], known.get(wanted[n].borrow)) for n in stage]
        for profile in Workers(jobs).each(lambda fit: of_published(*fit, effort), fits):
            known, count = {**known, profile.name: profile}, count + 1
            done(count / len(names))
            yield profile


def of_published(published: Published, lender: Profile | None, effort: Effort) -> Profile:
    """One profile; with a lender few parameters are fitted, the others are its."""
    start, free = STARTS.get(published.name, Model()), list(FIT_RANGES)
    if lender is not None:
        start, free = lender.model(), list(BORROWED)
    if published.name.startswith("dart"):  # another kind of drafter
        free += list(OTHER_DRAFTER)
    sources = sorted({t.source for t in published.targets.values()})
    credit = f"{', '.join(sources)}; {CREDIT}"
    return _fitted(published.name, credit, published.targets, start, free, published, lender, effort, lambda _: None)


def of_run(run: Run, name: str, effort: Effort, done: Progress) -> Profile:
    """A profile of a dense recorded run, from its own statistics.

    Raises:
        OptionError: a sparse log, or one that keeps fewer than eight ranks.
    """
    if run.facts.layout != "dense" or run.facts.rank_kept < RANK_CAP:
        raise OptionError(f"{run.folder}: a profile is fitted to a dense log that keeps {RANK_CAP} ranks or more")
    rounds = joined(list(run.rounds()))
    tokens = 1 + round(len(rounds) / len(np.unique(rounds.prompt)))
    published = Published(name, run_targets(rounds), run.facts.depth_max, max(tokens, run.facts.depth_max + 2))
    source = f"run {run.folder.name}, {run.manifest.prompts} prompts, {run.manifest.rounds} rounds"
    return _fitted(name, source, published.targets, Model(), list(FIT_RANGES), published, None, effort, done)


def run_targets(rounds: Rounds) -> dict[str, Target]:
    """The statistics of recorded rounds that a model is fitted to."""
    depth, kept = rounds.marginals.depth_max, rounds.marginals.rank_kept
    columns = [f"chain {depth}", *(f"topN {n}" for n in WIDTHS)]
    relative = [f"{mean}: {c}" for mean in ("R pooled", "R per prompt") for c in columns]
    relative += [f"R on chain rounds: {c}" for c in (*columns[:4], "schedule 47", "binary 47")]
    shares = ["first rejection, ranks: 2-4", "first rejection, ranks: 5-8", f"first rejection, ranks: {kept + 1}-"]
    shares += ["true token beyond rank: 8", "hit rate at depth 1: 0.9-1.0", "hit rate at depth 1: 0.6-0.7"]
    masses = [f"mass: {n}" for n in MASSES_AT if n <= LARGEST]
    values = statistics(recorded_sample(rounds), [*relative, *masses, *shares])
    found = {n: Target(values[n], values[n], 0.02, "the run") for n in relative}
    found |= {n: Target(values[n], values[n], 0.03, "the run") for n in masses if values[n] > 0}
    return found | {n: Target(values[n], values[n], 0.05, "the run", False) for n in shares if np.isfinite(values[n])}


def joined(parts: list[Rounds]) -> Rounds:
    """Rounds of several shards as one batch."""
    marginals = Marginals(
        np.concatenate([p.marginals.token for p in parts]), np.concatenate([p.marginals.logq for p in parts])
    )
    columns = ("continuation", "known", "prompt", "position", "remaining")
    return Rounds(marginals, **{name: np.concatenate([getattr(p, name) for p in parts]) for name in columns})


def _fitted(
    name: str,
    source: str,
    targets: dict[str, Target],
    start: Model,
    free: list[str],
    published: Published,
    lender: Profile | None,
    effort: Effort,
    done: Progress,
) -> Profile:
    depth, tokens = published.depth_max, published.tokens
    model = fit(targets, start, free, depth, tokens, effort, lambda share: done(share / 2))
    held_out = cross_validated(targets, model, free, depth, tokens, effort) if len(targets) > len(free) / 2 + 2 else []
    return Profile(
        name=name,
        source=source,
        depth_max=depth,
        tokens=tokens,
        parameters=parameters(model),
        borrowed_from=None if lender is None else lender.name,
        fitted=free,
        statistics=checked(model, targets, depth, tokens, effort),
        held_out=held_out,
        effort=asdict(effort),
    )
