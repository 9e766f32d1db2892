"""Kill a recorder twenty times at random points: `python kill_recorder.py TARGET HEAD FOLDER` prints how often.

A script, so that what it forks has not used a thread pool before.
"""

import os
import random
import shutil
import signal
import sys
import time
import traceback
from pathlib import Path

import torch

from castsim.live.models.chat import load_chat
from castsim.live.models.checkpoint import load_drafter
from castsim.live.models.target import load_target
from castsim.live.record import Recorder, RecordOptions, record
from castsim.runs.prompts import Conversation

KILLS = 20


def recorder(target, head):
    drafter = load_drafter(head, load_target(target, torch.float32, "cpu"))
    return Recorder(drafter, load_chat(target, raw=True, thinking=False), RecordOptions(new_tokens=20, batch=2))


def conversations():
    texts = ["one", "two words", "and three words", "1 2 3 4", "five", "six", "", "eight is more", "nine", "ten"]
    turns = [(text or "seven", "again") if i % 3 == 0 else (text or "seven",) for i, text in enumerate(texts)]
    numbers = [sum(map(len, turns[:i])) for i in range(len(turns))]
    return [Conversation(n, f"p{i}", "a", t, f"p{i}") for i, (n, t) in enumerate(zip(numbers, turns, strict=True))]


def attempt(made, out, patience):
    """Record in a child; True if it was killed before it ended. A child that fails by itself ends the script."""
    child = os.fork()
    if child == 0:
        try:
            record(made, conversations(), out)
        except BaseException:
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(1)
        os._exit(0)
    end = time.monotonic() + patience
    while time.monotonic() < end:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended and status:
            sys.exit("a recording failed by itself")
        if ended:
            return False
        time.sleep(0.001)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return True


def main(target, head, folder):
    torch.set_num_threads(1)
    made, dice, kills = recorder(target, head), random.Random(3), 0
    out, whole = Path(folder) / "killed", Path(folder) / "whole"
    begun = time.monotonic()
    attempt(made, whole, 600)
    seconds = time.monotonic() - begun
    while kills < KILLS:
        if out.exists():
            shutil.rmtree(out)
        kills += attempt(made, out, dice.uniform(0, 0.5 * seconds))
    if not out.exists():
        attempt(made, out, 600)
    print(kills)


if __name__ == "__main__":
    main(*sys.argv[1:])
