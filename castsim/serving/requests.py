"""What requests ask for: the outputs of a dense run, each with the round that every one of its positions would play."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from castsim.allocation import Pool, pool_of
from castsim.errors import OptionError
from castsim.runlog import Run
from replay import Rounds
from replay.trajectory import dense_spans

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


def outputs_of(run: Run, prompts: list[int] | None = None) -> Outputs:
    """The outputs of a run, as many whole shards as hold `ROWS_MAX` rounds.

    Raises:
        OptionError: a run that logged one policy's rounds only, along which no other policy can walk.
        RunLogError: from reading.
    """
    if run.facts.layout != "dense":
        raise OptionError(f"{run.folder} holds one policy's rounds; give a run that was recorded without --sparse")
    sequences = run.sequences()
    lengths = dict(zip(sequences["prompt"], sequences["prompt_tokens"].list.len(), strict=True))
    parts: list[Rounds] = []
    for rounds in run.rounds(prompts):
        parts.append(rounds)
        if sum(map(len, parts)) >= ROWS_MAX:
            break
    spans = [dense_spans(part) for part in parts]
    before = np.cumsum([0] + [len(part) for part in parts[:-1]])
    held = [part.prompt[first] for part, (first, _) in zip(parts, spans, strict=True)]
    return Outputs(
        pool_of(parts),
        np.concatenate([part.remaining for part in parts]).astype(np.int64),
        np.concatenate([first + offset for offset, (first, _) in zip(before, spans, strict=True)]),
        np.array([lengths[prompt] for prompt in np.concatenate(held).tolist()], np.int64),
    )


def drawn(outputs: Outputs, count: int, seed: int) -> Numbers:
    """(count,) the output of each request: all of them once in random order, then all of them again."""
    rng = np.random.default_rng([seed, STREAM])
    whole = -(-count // len(outputs.start))
    return np.concatenate([rng.permutation(len(outputs.start)) for _ in range(whole)])[:count]
