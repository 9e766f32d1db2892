"""One million rounds through `castsim replay`: time and memory, with one process and with two.

    python tests/bench/million.py [ROUNDS]

Writes a dense run of simulated rounds (L = 15, K = 8) to a temporary folder, some 600 MB for a million, and replays it
in fresh processes. Resident memory is that of the process and its workers together, sampled ten times a second.
"""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from simulated import DEPTH, RANK, simulated

from castsim.foreign import sequences_frame
from castsim.manifest import Facts
from castsim.runwriter import RunWriter, rounds_frame
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


def measure(folder: Path, jobs: int) -> tuple[float, float]:
    """Seconds and largest resident MiB of one replay."""
    start, peak = time.perf_counter(), 0.0
    command = [sys.executable, "-m", "castsim", "replay", str(folder)]
    process = subprocess.Popen(
        [*command, "--policy", "topN", "--jobs", str(jobs), "--json", "-"], stdout=subprocess.DEVNULL
    )
    while process.poll() is None:
        peak = max(peak, resident_mib(process.pid))
        time.sleep(0.1)
    if process.returncode:
        raise SystemExit(process.returncode)
    return time.perf_counter() - start, peak


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "run"
        start = time.perf_counter()
        write(folder, rounds)
        size = sum(f.stat().st_size for f in folder.iterdir()) / 2**20
        print(f"wrote {rounds // TOKENS * TOKENS:,} rounds, {size:,.0f} MiB, in {time.perf_counter() - start:.0f} s")
        one, two = measure(folder, 1), measure(folder, 2)
        for jobs, (seconds, peak) in ((1, one), (2, two)):
            print(f"--jobs {jobs}: {seconds:.1f} s, {seconds / rounds * 1e6:.1f} us a round, {peak:.0f} MiB resident")
        print(f"two processes take {two[0] / one[0]:.2f} of the time of one")


if __name__ == "__main__":
    main()
