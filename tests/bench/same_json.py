"""Do two checkouts say the same? The JSON of every verb on the sample run, byte by byte.

    python tests/bench/same_json.py OTHER_CHECKOUT [--only width]

Runs every command of `COMMANDS` in both, with the same interpreter, and prints what differs. Verbs that measure time
(live, probe, check) are compared by the fields of their JSON, not by the numbers. The places of the checkouts are
written as ROOT. The exit code is 1 where something differs. At the end stand the times of a whole `castsim replay`,
medians of ten taken in turns.
"""

from __future__ import annotations

import argparse
import difflib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).parents[2]
PROBE = "blackwell-qwen3-8b"
COMMANDS = (
    "replay --policy topN",
    "replay --policy all --budgets 15,31",
    "replay --policy topN --mode chain-rounds",
    "replay --policy topN --mode all-positions",
    f"replay --policy costaware,perround --probe {PROBE}",
    "calibrate",
    "policies",
    "width --probe pair-cpu",
    f"width --probe {PROBE} --masses qwen3-8b-gsm8k",
    "width --published",
    "forecast --probe pair-cpu",
    "forecast --published",
    "allocate --batch 8 --per-request 4,8",
    "serve --concurrency 1,8 --requests 32 --probe pair-cpu-batches",
    "serve --concurrency 1,8 --requests 32",
    "simulate --profile qwen3-8b-gsm8k --rounds 2000 --seed 7 --out simulated",
    "width simulated --probe pair-cpu",
    "report-profile qwen3-8b-gsm8k",
    "fit-profile simulated --steps 2 --rows 1024 --out mine.json",
    "import foreign.npz --out imported",
)
TIMED = ("record --limit 2 --out recorded", "probe --repeats 1 --out p.json", "check --limit 1", "live --limit 2")


def environment(root: Path) -> dict[str, str]:
    """The checkout's own code, one thread."""
    return {**os.environ, "PYTHONPATH": str(root), "OMP_NUM_THREADS": "1"}


def said(root: Path, command: str, folder: Path) -> str:
    """Standard output and the exit code's line of error, without the checkout's place."""
    words = [sys.executable, "-m", "castsim", *command.split(), "--json", "-"]
    done = subprocess.run(words, cwd=folder, env=environment(root), capture_output=True, text=True)
    return (
        (done.stdout + done.stderr + f"exit {done.returncode}\n").replace(str(root), "ROOT").replace(str(folder), "IN")
    )


def fields(value: object) -> object:
    """A document without its numbers and texts; a list by its first entry."""
    if isinstance(value, dict):
        return {key: fields(part) for key, part in value.items()}
    return [fields(value[0])] if isinstance(value, list) and value else type(value).__name__


def form(text: str) -> str:
    """What stays of the output of a verb that measures time."""
    try:
        return json.dumps(fields(json.loads(text.rpartition("exit")[0])), indent=1)
    except ValueError:
        return text


def difference(old: str, new: str) -> list[str]:
    """Lines that differ, the first few."""
    split = [text.replace(", ", ",\n").splitlines() for text in (old, new)]
    return [line[:160] for line in difflib.unified_diff(*split, lineterm="", n=0)][2:10]


def start_s(root: Path) -> float:
    """Seconds of one whole `castsim replay`."""
    begin = time.perf_counter()
    said(root, "replay --policy topN", root)
    return time.perf_counter() - begin


def main() -> None:
    """Compare, print, time."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("other", type=Path)
    parser.add_argument("--only", default="", help="commands that begin so")
    options = parser.parse_args()
    roots, differs = (options.other.resolve(), HERE), 0
    with tempfile.TemporaryDirectory() as old, tempfile.TemporaryDirectory() as new:
        for command in (*COMMANDS, *TIMED):
            if not command.startswith(options.only):
                continue
            texts = [said(root, command, Path(folder)) for root, folder in zip(roots, (old, new), strict=True)]
            if command in TIMED:
                texts = [form(text) for text in texts]
            found = difference(*texts)
            differs += bool(found)
            print(
                "DIFFERS" if found else "same   ",
                f"{len(texts[1]):8d} bytes  {command}",
                *found,
                sep="\n    "[: 5 * bool(found)] or " ",
                flush=True,
            )
    times = [[start_s(root) for root in roots] for _ in range(10)]
    medians = [statistics.median(column) for column in zip(*times, strict=True)]
    print(f"castsim replay, medians of ten in turns: {medians[0]:.2f} s there, {medians[1]:.2f} s here")
    sys.exit(bool(differs))


if __name__ == "__main__":
    main()
