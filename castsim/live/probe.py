"""The verify-cost probe: how long the target's pass takes over packed tokens, prefixes and batch sizes, here.

Source: appendix D, "Verify-cost probe", and D.1 for targets with recurrent layers.
"""

from __future__ import annotations

import importlib.metadata
import platform
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch

from castsim.base.errors import ModelError, OptionError
from castsim.costs.probefile import Probe
from castsim.live.decode.shapes import Job, ProbeOptions, jobs
from castsim.live.models.attention import Windows, windows_of
from castsim.live.models.drafter import Drafter
from castsim.live.models.target import Target

SETTLING = 4  # untimed calls


@torch.inference_mode()
def probe(
    target: Target,
    drafter: Drafter | None,
    options: ProbeOptions,
    done: Callable[[float], None] = lambda _: None,
    clock: Callable[[], float] = time.perf_counter,
) -> Probe:
    """Time every shape `iterations` times, in passes over all shapes, there and back in turns.

    A drift of the machine falls on all shapes alike, an outlier on one of many samples, and the first calls of a shape
    on its own warm-ups. A broken-off probe keeps its finished passes.

    Raises:
        OptionError: a prefix that leaves no room for the packed tokens.
        KeyboardInterrupt: before the first pass was finished.
    """
    _require_room(target, drafter, options)
    windows, notes = _windows(target, options)
    passes = measured(list(jobs(target, drafter, options, windows)), options, target.device, done, clock)
    if len(passes) < options.iterations:
        notes.append(f"Broken off after {len(passes)} of {options.iterations} passes.")
    return _written(target, drafter, options, windows is None, passes, notes)


def measured(
    shapes: Sequence[Job],
    options: ProbeOptions,
    device: torch.device,
    done: Callable[[float], None],
    clock: Callable[[], float],
) -> list[dict[tuple[int, int, int], float]]:
    """Milliseconds of each shape in each finished pass.

    Raises:
        KeyboardInterrupt: no pass was finished.
    """

    def wait() -> None:
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    def timed(job: Job) -> float:
        job.prepare()
        wait()
        begun = clock()
        job.run()
        wait()
        return 1e3 * (clock() - begun)

    passes: list[dict[tuple[int, int, int], float]] = []
    total = options.warmups + options.iterations
    try:
        for number in range(total):
            order = shapes if number % 2 == 0 else shapes[::-1]
            found = _one_pass(order, timed)
            if number >= options.warmups:
                passes.append(found)
            done((number + 1) / total)
    except KeyboardInterrupt:
        if not passes:
            raise
    return passes


def _one_pass(order: Sequence[Job], timed: Callable[[Job], float]) -> dict[tuple[int, int, int], float]:
    """Milliseconds of each shape. Where prefix or batch change, the next one settles: behind a heavy one it is slow."""
    found = {}
    for before, job in pairwise([order[0], *order]):
        if before.cell[:2] != job.cell[:2]:
            for _ in range(SETTLING):
                timed(job)
        found[job.cell] = timed(job)
    return found


def _require_room(target: Target, drafter: Drafter | None, options: ProbeOptions) -> None:
    room = target.positions_max if drafter is None else min(target.positions_max, drafter.positions_max)
    if options.prefixes[-1] + options.packed[-1] > room:
        problem = f"with {options.packed[-1]} packed tokens is beyond the {room} positions of these models"
        raise OptionError(f"--prefix {options.prefixes[-1]}: {problem}; give a shorter one")


def _windows(target: Target, options: ProbeOptions) -> tuple[Windows | None, list[str]]:
    """The target's attention; None for a pass without a tree mask, which recurrent layers cannot take."""
    if options.plain:
        return None, []
    try:
        return windows_of(target.model, target.name), []
    except ModelError as error:
        return None, [f"Timed without a tree mask: the target {error.problem}."]


def _written(
    target: Target,
    drafter: Drafter | None,
    options: ProbeOptions,
    plain: bool,
    passes: list[dict[tuple[int, int, int], float]],
    notes: list[str],
) -> Probe:
    axes = (len(options.prefixes), len(options.batches))
    samples = np.empty((*axes, len(options.packed), len(passes)))
    draft = np.empty((*axes, len(passes)))
    for number, found in enumerate(passes):
        for (p, b, n), ms in found.items():
            if n < 0:
                draft[p, b, number] = ms
            else:
                samples[p, b, n, number] = ms
    drafted = drafter is not None
    return Probe(
        source="castsim probe",
        packed=list(options.packed),
        prefix=list(options.prefixes),
        batch=list(options.batches),
        ms=np.median(samples, axis=-1).tolist(),
        samples_ms=samples.round(6).tolist(),
        draft_ms=np.median(draft, axis=-1).tolist() if drafted else None,
        draft_samples_ms=draft.round(6).tolist() if drafted else None,
        target=target.name,
        drafter=drafter.name if drafter is not None else None,
        drafter_kind=drafter.kind if drafter is not None else None,
        depth_max=drafter.depth_max if drafter is not None else None,
        device=machine(target.device),
        dtype=str(target.dtype).removeprefix("torch."),
        attention=target.attention,
        plain=plain,
        warmups=options.warmups,
        order="passes over all shapes, there and back in turns",
        versions={name: importlib.metadata.version(name) for name in ("castsim", "torch", "transformers")},
        notes=notes,
    )


def machine(device: torch.device) -> str:
    """What a device is called; of a CPU its model and the threads in use."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    model = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.is_file():
        names = [
            line.partition(":")[2].strip()
            for line in info.read_text(encoding="utf-8-sig", errors="replace").splitlines()
            if "model name" in line
        ]
        model = names[0] if names else model
    return f"{model}, {torch.get_num_threads()} threads" if device.type == "cpu" else device.type
