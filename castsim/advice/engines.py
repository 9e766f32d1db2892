"""The answer as the configuration of an inference engine, or why that engine cannot be told it."""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass, replace
from typing import Any

from castsim.base.errors import OptionError


@dataclass(frozen=True)
class Configuration:
    """What to give to an engine.

    Attributes:
        text: options or JSON; what the engine can run of the answer.
        expresses: it is the whole answer.
        note: what is missing, and where the option is documented.
    """

    engine: str
    text: str
    expresses: bool
    note: str


def configuration(
    engine: str,
    budget: int | None,
    depth_max: int,
    target: str | None = None,
    drafter: str | None = None,
    kind: str | None = None,
) -> Configuration:
    """The answer for one engine: a tree of `budget` nodes, or None for the chain.

    Args:
        kind: of the drafter; None is unknown, and the line is one for a DFlash head.

    Raises:
        OptionError: an engine that castsim does not know, or that does not run such drafters.
    """
    if engine not in ENGINES:
        raise OptionError(f"--emit {engine}: there are {', '.join([*ENGINES, 'json'])}")
    if kind not in (None, "dflash"):
        named = "" if drafter is None else f" {drafter}"
        raise OptionError(
            f"--emit {engine}: the drafter{named} is a {kind.upper()} head, and castsim knows of no option of {engine} "
            "that runs it; --emit json prints the answer itself"
        )
    found = ENGINES[engine](budget, depth_max, target or "TARGET", drafter or "DRAFTER")
    if kind is None:
        return replace(found, note=f"{found.note}; what kind of drafter it is was not told, the line is for DFlash")
    return found


def _sglang(budget: int | None, depth_max: int, target: str, drafter: str) -> Configuration:
    options = {
        "--model-path": target,
        "--speculative-algorithm": "DFLASH",
        "--speculative-draft-model-path": drafter,
        "--speculative-num-draft-tokens": depth_max + 1,  # the block, root included
    }
    note = "SGLang's DFLASH verifies the chain of a block (flags as in the model cards of z-lab's heads)"
    return Configuration("sglang", f"python -m sglang.launch_server {_line(options)}", *_chain_only(budget, note))


def _vllm(budget: int | None, depth_max: int, target: str, drafter: str) -> Configuration:
    config = json.dumps({"method": "dflash", "model": drafter, "num_speculative_tokens": depth_max})
    note = "vLLM's method dflash verifies the chain of a block (docs.vllm.ai, speculators, DFlash)"
    text = f"vllm serve {shlex.quote(target)} --speculative-config {shlex.quote(config)}"
    return Configuration("vllm", text, *_chain_only(budget, note))


def _lucebox(budget: int | None, depth_max: int, target: str, drafter: str) -> Configuration:
    options: dict[str, Any] = {"--draft": drafter}
    tree = "" if budget is None else f" --ddtree --ddtree-budget {budget}"
    note = (
        "Lucebox's DDTree is best-first over one-pass marginals, its budget counts nodes below the root "
        "(github.com/Luce-Org/lucebox, server); target and drafter are GGUF files there"
    )
    return Configuration("lucebox", f"dflash_server {shlex.quote(target)} {_line(options)}{tree}", True, note)


def _chain_only(budget: int | None, note: str) -> tuple[bool, str]:
    if budget is None:
        return True, note
    return False, f"{note}: a tree of {budget} nodes cannot be expressed, the line above runs the chain instead"


def _line(options: dict[str, Any]) -> str:
    return " ".join(f"{key} {shlex.quote(str(value))}" for key, value in options.items())


ENGINES = {"sglang": _sglang, "vllm": _vllm, "lucebox": _lucebox}
