"""Rounds by the million through `castsim replay`: time and memory, with one process and with two.

    python tests/bench/million.py [ROUNDS [TIMES]]

Writes a dense run of simulated rounds (L = 15, K = 8) to a temporary folder, some 600 MB for a million, and replays it
in fresh processes, by turns with one and with two, all pinned to the same two cores. Resident memory is that of the
process and its workers together, sampled ten times a second. Where other programs use the cores, the seconds of CPU say
so: they are then far from the seconds on the clock times the processes.
"""

import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
from simulated import DEPTH, RANK, simulated

from castsim.runs.foreign import sequences_frame
from castsim.runs.manifest import Facts
from castsim.runs.writing import RunWriter, rounds_frame
from replay import Rounds

TOKENS = 128  # rows a prompt
PROMPTS_IN_SHARD = 64


def write(folder: Path, rounds: int) -> None:
    """Prompts of 129 output tokens; a continuation is the prompt's own output, on the drafter's candidates."""
    facts = Facts(layout="dense", depth_max=DEPTH, rank_kept=RANK, simulated=True, seed=0)
    with RunWriter(folder, facts) as writer:
        for first in range(0, rounds // TOKENS, PROMPTS_IN_SHARD):
            writer.add(*shard(first, min(PROMPTS_IN_SHARD, rounds // TOKENS - first)))


def shard(first: int, prompts: int):
    """Row p of a prompt holds candidates for its tokens p+1.. p+L, right as often as its ranks say."""
    drawn = simulated(prompts * TOKENS, seed=first)
    rng = np.random.default_rng([first, 1])
    output = rng.integers(0, 90_000, (prompts, TOKENS + 1))
    ahead = np.minimum(np.arange(TOKENS)[:, None] + 1 + np.arange(DEPTH), TOKENS)  # (T, L)
    true = output[:, ahead].reshape(-1, DEPTH)  # (B, L)
    hit = drawn.marginals.token == drawn.continuation[:, :, None]
    token = np.where(hit, true[:, :, None], drawn.marginals.token + 100_000)
    remaining = np.tile(np.arange(TOKENS, 0, -1), prompts)
    known = np.minimum(remaining, DEPTH)
    prompt, position = np.repeat(np.arange(prompts), TOKENS) + first, np.tile(np.arange(TOKENS), prompts)
    rows = [
        {
            "prompt_id": f"p{first + i}",
            "domain": "ab"[i % 2],
            "prompt_tokens": [0],
            "output_tokens": o,
            "finish": "length",
        }
        for i, o in enumerate(output.tolist())
    ]
    sequences = sequences_frame(rows)
    sequences = sequences.with_columns(sequences["prompt"] + first)
    rounds = Rounds(type(drawn.marginals)(token, drawn.marginals.logq), true, known, prompt, position, remaining)
    return sequences, rounds_frame(rounds, sequences)


def resident_mib(pid: int) -> float:
    """Resident memory of a process and its descendants."""
    total, wanted, parents = 0, {pid}, {}
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            fields = dict(line.split(":\t", 1) for line in status.read_text().splitlines() if ":\t" in line)
        except OSError:
            continue
        parents[int(fields["Pid"])] = (int(fields["PPid"]), int(fields.get("VmRSS", "0 kB").split()[0]))
    for child in sorted(parents):
        if parents[child][0] in wanted:
            wanted.add(child)
    total = sum(parents[p][1] for p in wanted if p in parents)
    return total / 1024


class Measured(NamedTuple):
    """One replay: seconds on the clock and of all its processes' CPU, and the most memory that they held together."""

    seconds: float
    cpu_s: float
    resident_mib: float


def measure(folder: Path, jobs: int) -> Measured:
    """One replay in a fresh process."""
    start, before, peak = time.perf_counter(), cpu_of_children_s(), 0.0
    command = [sys.executable, "-m", "castsim", "replay", str(folder)]
    process = subprocess.Popen(
        [*command, "--policy", "topN", "--jobs", str(jobs), "--json", "-"], stdout=subprocess.DEVNULL
    )
    while process.poll() is None:
        peak = max(peak, resident_mib(process.pid))
        time.sleep(0.1)
    if process.returncode:
        raise SystemExit(process.returncode)
    return Measured(time.perf_counter() - start, cpu_of_children_s() - before, peak)


def cpu_of_children_s() -> float:
    """Of all processes that have ended below this one."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def pin(cores: int) -> None:
    """Keep this process and those it starts on so many cores, where the system can."""
    if hasattr(os, "sched_setaffinity"):
        allowed = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, allowed[:cores])
        print(f"cores: {allowed[:cores]}")


def told(jobs: int, found: list[Measured], rounds: int) -> tuple[float, float]:
    """Print the measurements of one number of processes; their least and median seconds."""
    seconds = [one.seconds for one in found]
    least, median = min(seconds), statistics.median(seconds)
    cpu_s, peak = statistics.median(one.cpu_s for one in found), max(one.resident_mib for one in found)
    print(
        f"--jobs {jobs}: {least:.1f} s at least, {median:.1f} s median of {len(found)} ({least / rounds * 1e6:.1f} us "
        f"a round), {cpu_s:.1f} s of CPU, {peak:.0f} MiB resident"
    )
    return least, median


def main() -> None:
    rounds, times = (*map(int, sys.argv[1:]), *(1_000_000, 3)[len(sys.argv) - 1 :])
    pin(2)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "run"
        start = time.perf_counter()
        write(folder, rounds)
        size = sum(f.stat().st_size for f in folder.iterdir()) / 2**20
        print(f"wrote {rounds // TOKENS * TOKENS:,} rounds, {size:,.0f} MiB, in {time.perf_counter() - start:.0f} s")
        turns = [(measure(folder, 1), measure(folder, 2)) for _ in range(times)]
        one, two = (told(jobs, list(found), rounds) for jobs, found in enumerate(zip(*turns, strict=True), start=1))
        print(
            f"two processes: {one[0] / two[0]:.2f} times as fast as one by the least, {one[1] / two[1]:.2f} by medians"
        )


if __name__ == "__main__":
    main()
