"""Small runs for tests: made in memory, written by the real writer, and broken on purpose."""

import json
from pathlib import Path

import numpy as np
import polars as pl

from castsim.runs.foreign import sequences_frame
from castsim.runs.manifest import Facts, Manifest, read_manifest, write_manifest
from castsim.runs.writing import RunWriter, _entry, rounds_frame
from replay import Marginals, Rounds

DEPTH, RANK, VOCAB = 3, 4, 50


def facts(**changes) -> Facts:
    return Facts(**{"layout": "dense", "depth_max": DEPTH, "rank_kept": RANK, "vocab_size": VOCAB, **changes})


def prompts(lengths, domains=("a", "b"), seed=0, first=0) -> tuple[pl.DataFrame, Rounds]:
    """Sequences of so many output tokens and the dense rounds of a drafter that is often right."""
    rng = np.random.default_rng([seed, first])
    outputs = [rng.integers(1, VOCAB, n).tolist() for n in lengths]
    rows = [
        {
            "prompt_id": f"p{first + i}",
            "domain": domains[i % len(domains)],
            "prompt_tokens": [1, 2, 3],
            "output_tokens": output,
            "finish": "length",
        }
        for i, output in enumerate(outputs)
    ]
    sequences = sequences_frame(rows).with_columns(pl.col("prompt") + first)
    place = [(i, p) for i, output in enumerate(outputs) for p in range(len(output) - 1)]
    continuation = np.full((len(place), DEPTH), -1)
    token = np.argsort(rng.random((len(place), DEPTH, VOCAB)), axis=2)[:, :, :RANK]
    for b, (i, p) in enumerate(place):
        span = outputs[i][p + 1 : p + 1 + DEPTH]
        continuation[b, : len(span)] = span
        for d, true in enumerate(span):
            if rng.random() < 0.8 and true not in token[b, d]:
                token[b, d, rng.integers(0, RANK)] = true
    mass = -np.sort(-rng.dirichlet(np.full(RANK + 1, 0.5), token.shape[:2])[:, :, :RANK], axis=2)
    prompt, position = np.array(place).reshape(-1, 2).T
    remaining = np.array([len(outputs[i]) - 1 - p for i, p in place])
    marginals = Marginals.ranked(token, np.log(np.maximum(mass, 1e-9)).astype(np.float32))
    known = np.minimum(remaining, DEPTH)
    return sequences, Rounds(marginals, continuation, known, prompt + first, position, remaining)


def write(folder: Path, shards, run_facts: Facts | None = None) -> Path:
    """A run folder of (sequences, rounds) shards."""
    with RunWriter(folder, run_facts or facts()) as writer:
        for sequences, rounds in shards:
            writer.add(sequences, rounds_frame(rounds, sequences))
    return folder


def reseal(folder: Path, **changes) -> None:
    """Make the manifest agree with the files as they are now, so that deeper checks are reached."""
    manifest = read_manifest(folder)
    files = tuple(_entry(folder / entry.name) if (folder / entry.name).exists() else entry for entry in manifest.files)
    body = {**manifest.model_dump(), "files": [f.model_dump() for f in files], **changes}
    write_manifest(folder, Manifest.model_validate(body))


def alter(folder: Path, name: str, *columns: pl.Expr | pl.Series) -> None:
    """Rewrite columns of one Parquet file and reseal."""
    file = folder / name
    pl.read_parquet(file).with_columns(*columns).write_parquet(file, row_group_size=8)
    reseal(folder)


def instead(words, more):
    """Words of a command line, with options of `more` in place of the same ones."""
    kept, more = list(map(str, words)), list(map(str, more))
    for option in more:
        if option.startswith("--") and option in kept:
            place = kept.index(option)
            del kept[place : place + 2]
    return [*kept, *more]


def document(castsim, *arguments):
    """What a verb prints with --json -."""
    code, out, _ = castsim(*arguments, "--json", "-")
    assert code == 0
    return json.loads(out)  # the whole of stdout is one document
