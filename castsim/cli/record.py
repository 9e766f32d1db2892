"""castsim record."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import typer

from castsim import __version__
from castsim.base import terminal
from castsim.base.errors import OptionError
from castsim.cli import arguments
from castsim.cli.common import document_head, live_extra, memory_told
from castsim.cli.exclusive import refuse_idle, refuse_sampling, refuse_together
from castsim.runs.parts import missing_parts, shard_of
from castsim.runs.prompts import read_prompts
from castsim.runs.reading import open_run
from castsim.scoring.policies import one_policy

FULL = "give a smaller --batch or another --device; whole prompts stay"


def record(
    context: typer.Context,
    target: arguments.Target = "pair",
    drafter: arguments.Drafter = None,
    prompts: arguments.Prompts = None,
    out: arguments.RunOut = Path("castsim-run"),
    limit: arguments.Limit = None,
    max_new_tokens: arguments.NewTokens = 128,
    rank_kept: arguments.RankKept = 16,
    temperature: arguments.Temperature = 0.0,
    top_k: arguments.TopK = 0,
    top_p: arguments.TopP = 1.0,
    raw: arguments.Raw = False,
    thinking: arguments.Thinking = False,
    dtype: arguments.Dtype = "auto",
    device: arguments.Device = "auto",
    batch: arguments.Batch = 32,
    shard: arguments.ShardOf = None,
    sparse: arguments.Sparse = None,
    budget: arguments.Budget = 63,
    target_logp: arguments.TargetLogp = False,
    licence: arguments.Licence = None,
    seed: arguments.RecordSeed = 0,
    json_to: arguments.Json = None,
) -> None:
    """Record a run: the target's outputs, and the drafter's marginals at every position of them. Needs '.[live]'.

    A recording that was broken off goes on where it was. Without arguments it records the small pair that castsim
    carries, on a CPU in under a minute.

    \b
    castsim record --out RUN
    castsim record --target Qwen/Qwen3-8B --drafter z-lab/Qwen3-8B-DFlash-b16 --prompts gsm8k --limit 100 --out RUN
    """
    terminal.check_target(json_to, "--json")
    refuse_idle(context, "--sparse", "--budget")
    refuse_sampling(context, temperature)
    refuse_together(context, "--raw", "--thinking")
    part = shard_of(shard) if shard else _torchrun_shard()
    policy = one_policy("--sparse", sparse, [], budget) if sparse else None
    with live_extra("record"):
        from castsim.live import pair
        from castsim.live import record as run
        from castsim.live.models import load
    conversations = read_prompts(prompts or str(pair.PROMPTS), limit)
    sampling = run.Sampling(temperature, top_k, top_p)
    options = run.RecordOptions(max_new_tokens, rank_kept, batch, sampling, seed, target_logp, policy)
    with memory_told(FULL):
        models = load.load_pair(target, drafter, dtype, device, raw, thinking)
    recorder = run.Recorder(*models, options)
    own = pair.LICENCE if (target, drafter or "pair-dflash") in pair.PAIRS and prompts is None else None
    begun = time.perf_counter()
    with terminal.progress("record") as done, memory_told(FULL):
        made = run.record(recorder, conversations, out, part, licence or own, done)
    _tell(out, made, part, time.perf_counter() - begun, json_to)


def _tell(out: Path, recorded: Any, part: tuple[int, int], seconds: float, json_to: str | None) -> None:
    if not recorded.whole:
        missing = missing_parts(out, part[1])
        note = f"Shard {part[0]} of {part[1]} is recorded; still to come: {', '.join(map(str, missing))}."
        told = {"verb": "record", "version": __version__, "whole": False, "shard": list(part), "missing": missing}
        terminal.emit(told, [], [note], json_to)
        return
    made = open_run(out)
    facts, manifest = made.facts, made.manifest
    grid = terminal.table(f"{out}", "layout", "prompts", "rounds", "L", "K", "seconds", "rounds/s")
    rate = f"{recorded.rounds / seconds:.0f}"  # of this call
    cells = (manifest.prompts, manifest.rounds, facts.depth_max, facts.rank_kept, f"{seconds:.1f}", rate)
    grid.add_row(facts.layout, *map(str, cells))
    notes = [*facts.notes, f"Replay it: castsim replay {out}"]
    terminal.emit({**document_head("record", made), "whole": True, "seconds": seconds}, [grid], notes, json_to)


def _torchrun_shard() -> tuple[int, int]:
    """What torchrun says of this process; 1 of 1 without it."""
    rank, size = os.environ.get("RANK", "0"), os.environ.get("WORLD_SIZE", "1")
    if not (rank.isdecimal() and size.isdecimal()):
        raise OptionError(f"RANK={rank} WORLD_SIZE={size}: are not what torchrun sets; unset them, or give --shard")
    return shard_of(f"{int(rank) + 1}/{size}")
