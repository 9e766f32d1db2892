"""castsim probe."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

from castsim import __version__
from castsim.base import terminal
from castsim.base.errors import OptionError
from castsim.cli import arguments
from castsim.cli.common import live_extra, memory_told
from castsim.cli.counts import counts
from castsim.cli.exclusive import refuse_together
from castsim.costs.probefile import Probe
from castsim.show.tables.probe_table import probe_table


def probe(
    context: typer.Context,
    target: arguments.Target = "pair",
    drafter: arguments.Drafter = None,
    out: arguments.ProbeOut = Path("probe.json"),
    packed: arguments.PackedCounts = None,
    prefix: arguments.Prefixes = None,
    batch: arguments.Batches = "1",
    plain: arguments.Plain = False,
    random_weights: arguments.RandomWeights = False,
    config: arguments.ConfigFile = None,
    drafter_config: arguments.DrafterConfigFile = None,
    warmups: arguments.Warmups = 8,
    iterations: arguments.Iterations = 30,
    dtype: arguments.Dtype = "auto",
    device: arguments.Device = "auto",
    seed: arguments.ProbeSeed = 0,
    json_to: arguments.Json = None,
) -> None:
    """Time the target's pass over packed tokens, prefixes and batch sizes on this machine. Needs '.[live]'.

    Without arguments it probes the small pair that castsim carries. Broken off, it keeps the passes that it finished.

    \b
    castsim probe --out probe.json
    castsim probe --target Qwen/Qwen3-8B --drafter z-lab/Qwen3-8B-DFlash-b16 --prefix 1024,4096 --batch 1,8
    castsim probe --random-weights --config config.json --plain
    """
    terminal.check_target(json_to, "--json")
    terminal.check_target(out, "--out")
    if out.exists():
        raise OptionError(f"--out {out}: is there already, and a probe takes its time; name another file")
    axes = [counts(option, text) for option, text in (("--packed", packed), ("--prefix", prefix), ("--batch", batch))]
    if random_weights != (config is not None):
        raise OptionError("--random-weights: goes with --config FILE, the target's config.json")
    refuse_together(context, "--random-weights", "--target")
    refuse_together(context, "--drafter-config", "--drafter")
    with live_extra("probe"):
        from castsim.live import probe as run
        from castsim.live.decode import shapes
        from castsim.live.models.load import load_for_probe
    with memory_told("give another --device"):
        loaded, bound = load_for_probe(target, drafter, config, drafter_config, dtype, device, seed)
    options = _options(shapes, loaded, bound, axes, warmups, iterations, plain, seed)
    with terminal.progress("probe") as done, memory_told("give shorter --prefix, smaller --batch or another --device"):
        found = run.probe(loaded, bound, options, done)
    terminal.write_text(out, found.model_dump_json() + "\n", "--out")
    _tell(out, found, json_to)


def _options(
    shapes: Any, loaded: Any, bound: Any, axes: list[Any], warmups: int, iterations: int, plain: bool, seed: int
) -> Any:
    """The axes asked for; the paper's prefix where the models have room for it, else half of what they have."""
    packed, prefixes, batches = axes
    packed = packed or shapes.PACKED
    if prefixes is None:
        room = min(loaded.positions_max, loaded.positions_max if bound is None else bound.positions_max)
        prefixes = (shapes.PREFIX if shapes.PREFIX + packed[-1] <= room else room // 2,)
    return shapes.ProbeOptions(packed, prefixes, batches, warmups, iterations, plain, seed)


def _tell(out: Path, found: Probe, json_to: str | None) -> None:
    how = "without tree mask and hidden states" if found.plain else "with tree mask and hidden states"
    notes = [
        *found.notes,
        f"{found.target}, {found.dtype}, {found.attention}, {how}, on {found.device}; medians of "
        f"{len(found.samples_ms[0][0][0]) if found.samples_ms else 0} passes, +- their standard errors.",
        f"Read it: castsim width --probe {out}",
    ]
    document = {"verb": "probe", "version": __version__, "out": str(out), "probe": found.model_dump(mode="json")}
    terminal.emit(document, [probe_table(found)], notes, json_to)
