"""One training loop for all models: two workers share a step, checkpoints make it resumable, a step depends on its
number and the schedule alone."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch

from castsim.live.pair.recipe import Schedule

CHECKPOINT_SECONDS = 120.0
Batch = Callable[[int], Sequence[Any]]  # step -> micro-batches
Loss = Callable[[Any], torch.Tensor]  # micro-batch -> mean loss


def learning_rate(schedule: Schedule, step: int) -> float:
    """Linear warm-up, then a cosine from `peak` to `floor`."""
    if step < schedule.warmup:
        return schedule.peak * (step + 1) / schedule.warmup
    share = (step - schedule.warmup) / max(schedule.steps - schedule.warmup, 1)
    return schedule.floor + (schedule.peak - schedule.floor) * 0.5 * (1 + math.cos(math.pi * share))


def fit(model: torch.nn.Module, batch: Batch, loss: Loss, schedule: Schedule, folder: Path, workers: int = 2) -> None:
    """Train `model` in place for `schedule.steps`, from the last checkpoint in `folder` if there is one.

    Writes `folder/log.jsonl` (step, loss, rate, seconds) and `folder/checkpoint.pt`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    weights = [p for p in model.parameters() if p.requires_grad]
    groups = [
        {"params": [p for p in weights if p.ndim > 1], "weight_decay": schedule.weight_decay},
        {"params": [p for p in weights if p.ndim <= 1], "weight_decay": 0.0},
    ]
    optimiser = torch.optim.AdamW(groups, betas=(0.9, 0.95), fused=True)
    step, spent = _take_up(model, optimiser, folder)
    begun = saved = time.monotonic()
    with ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        while step < schedule.steps:
            rate = learning_rate(schedule, step)
            mean = _step(pool, weights, batch(step), loss, optimiser, rate, schedule.clip)
            step += 1
            now = time.monotonic()
            if step % 50 == 0 or step == schedule.steps:
                _note(folder, step, mean, rate, spent + now - begun)
            if now - saved > CHECKPOINT_SECONDS or step == schedule.steps:
                _save(model, optimiser, folder, step, spent + now - begun)
                saved = now


def _step(
    pool: ThreadPoolExecutor,
    weights: list[torch.nn.Parameter],
    parts: Sequence[Any],
    loss: Loss,
    optimiser: torch.optim.Optimizer,
    rate: float,
    clip: float,
) -> float:
    """One optimiser step on the mean of the parts' losses, which it returns."""

    def gradients(part: Any) -> tuple[float, tuple[torch.Tensor, ...]]:
        value = loss(part)
        return value.item(), torch.autograd.grad(value, weights)

    found = list(pool.map(gradients, parts))
    for weight, *each in zip(weights, *(g for _, g in found), strict=True):
        weight.grad = torch.stack(each).mean(dim=0)
    torch.nn.utils.clip_grad_norm_(weights, clip)
    for group in optimiser.param_groups:
        group["lr"] = rate
    optimiser.step()
    return sum(value for value, _ in found) / len(found)


def _take_up(model: torch.nn.Module, optimiser: torch.optim.Optimizer, folder: Path) -> tuple[int, float]:
    file = folder / "checkpoint.pt"
    if not file.exists():
        return 0, 0.0
    state = torch.load(file, weights_only=True)
    model.load_state_dict(state["model"], strict=False)
    optimiser.load_state_dict(state["optimiser"])
    return state["step"], state["seconds"]


def _save(model: torch.nn.Module, optimiser: torch.optim.Optimizer, folder: Path, step: int, seconds: float) -> None:
    part = folder / "checkpoint.part"
    state = {"model": model.state_dict(), "optimiser": optimiser.state_dict(), "step": step, "seconds": seconds}
    torch.save(state, part)
    os.replace(part, folder / "checkpoint.pt")


def _note(folder: Path, step: int, loss: float, rate: float, seconds: float) -> None:
    line = {"step": step, "loss": round(loss, 4), "rate": round(rate, 6), "seconds": round(seconds, 1)}
    with (folder / "log.jsonl").open("a", encoding="utf-8") as log:
        log.write(json.dumps(line) + "\n")
