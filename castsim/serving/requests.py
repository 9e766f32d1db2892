"""What requests ask for: the outputs of a dense run, each with the round that every one of its positions would play."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
import polars as pl
from numpy.typing import NDArray

from castsim.base.errors import OptionError, RunLogError
from castsim.runs.reading import Run
from castsim.scoring.allocate import Pool, pool_of
from replay import Rounds

Numbers = NDArray[np.int64]
ROWS_MAX = 100_000  # rounds held, at about 2 kB each
STREAM = 1  # of the draw of outputs, beside that of arrivals


@dataclass(frozen=True, eq=False)
class Outputs:
    """S outputs over R rounds, one output's positions behind another's.

    Attributes:
        pool: of all rounds.
        remaining: (R,) tokens that the output still has.
        start: (S,) first round of each; prompt_tokens: (S,) length of its prompt.
    """

    pool: Pool
    remaining: Numbers
    start: Numbers
    prompt_tokens: Numbers

    @property
    def tokens(self) -> Numbers:
        """(S,) output tokens, prefill's included."""
        return self.remaining[self.start] + 1


@dataclass(frozen=True, eq=False)
class Requests:
    """N requests: which output each is, and how long its prompt.

    Attributes:
        outputs: those that some request is.
        which: (N,) the output of each; prompt_tokens: (N,).
        of: outputs of the run that could have been drawn.
    """

    outputs: Outputs
    which: Numbers
    prompt_tokens: Numbers
    of: int

    def first(self, count: int) -> Requests:
        """The first `count` of them."""
        return replace(self, which=self.which[:count], prompt_tokens=self.prompt_tokens[:count])


def requests_of(
    run: Run,
    prompts: Sequence[int] | None,
    count: int,
    seed: int,
    prompt_tokens: Numbers | None = None,
    done: Callable[[float], None] = lambda _: None,
) -> Requests:
    """Requests drawn from a run's outputs. Only rounds of outputs that are drawn are read and prepared.

    Args:
        prompt_tokens: (count,) lengths to take in the place of those of the run's prompts.

    Raises:
        OptionError: a run that logged one policy's rounds only, along which no other policy can walk.
        RunLogError: from reading, or where no output has a round.
    """
    if run.facts.layout != "dense":
        raise OptionError(f"{run.folder} holds one policy's rounds; give a run that was recorded without --sparse")
    known = _lengths(run, prompts)
    which, of = drawn(known["rounds"].to_numpy(), count, seed), len(known)
    kept, place = np.unique(which, return_inverse=True)
    own = known[kept.tolist()]
    outputs = _outputs(run, own, done)
    lengths = outputs.prompt_tokens[place] if prompt_tokens is None else prompt_tokens
    return Requests(outputs, place.astype(np.int64), lengths, of)


def _lengths(run: Run, prompts: Sequence[int] | None) -> pl.DataFrame:
    """Prompts whose outputs have rounds: number, prompt_tokens and rounds, in order of number."""
    found = run.sequences().select(
        "prompt", pl.col("prompt_tokens").list.len(), rounds=pl.col("output_tokens").list.len().cast(pl.Int64) - 1
    )
    chosen = pl.lit(True) if prompts is None else pl.col("prompt").is_in(list(prompts))
    found = found.filter(chosen & (pl.col("rounds") > 0)).sort("prompt")
    if found.is_empty():
        raise RunLogError(run.folder, "has no output with a round", "choose other prompts, or record longer outputs")
    return found


def _outputs(run: Run, own: pl.DataFrame, done: Callable[[float], None]) -> Outputs:
    """The outputs of some prompts, in order of their numbers."""
    pools, parts, rounds = [], list[Rounds](), own["rounds"].to_numpy()
    for part in run.rounds(own["prompt"].to_list()):
        pools.append(pool_of([part]))
        parts.append(part)
        done(sum(map(len, parts)) / int(rounds.sum()))
    order = np.argsort(np.concatenate([part.prompt for part in parts]), kind="stable")  # parts may come in any order
    pool = Pool(*(np.concatenate([getattr(p, f.name) for p in pools])[order] for f in fields(Pool)))
    remaining = np.concatenate([part.remaining for part in parts]).astype(np.int64)[order]
    return Outputs(pool, remaining, np.cumsum(rounds) - rounds, own["prompt_tokens"].to_numpy().astype(np.int64))


def drawn(rounds: Numbers, count: int, seed: int) -> Numbers:
    """(count,) the output of each request: all of them once in random order, then all of them again.

    All of a long run do not fit: then those that come first in the order and hold `ROWS_MAX` rounds together.

    Args:
        rounds: (S,) of each output.
    """
    rng = np.random.default_rng([seed, STREAM])
    order = rng.permutation(len(rounds))
    held = order[: max(1, int(np.searchsorted(np.cumsum(rounds[order]), ROWS_MAX, side="right")))]
    again = -(-count // len(held)) - 1
    return np.concatenate([held, *(rng.permutation(held) for _ in range(again))])[:count]
