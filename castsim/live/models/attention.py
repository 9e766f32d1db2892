"""What kinds of attention a target has, and whether a tree can be verified under them."""

from __future__ import annotations

from typing import Any

from castsim.base.errors import ModelError

Windows = dict[str, int | None]  # kind of layer -> how many positions it sees, None: all
FULL, SLIDING = "full_attention", "sliding_attention"
MASKED = ("sdpa", "eager")  # attention code that adds the mask it is given


def windows_of(model: Any, name: str) -> Windows:
    """The kinds of a model's layers.

    Raises:
        ModelError: recurrent layers, kinds that this project does not know, or attention code that takes no mask.
    """
    config = model.config.get_text_config()
    code = getattr(config, "_attn_implementation", None) or "eager"
    if code not in MASKED:
        problem = f"runs {code}, which leaves out the mask of a tree"
        raise ModelError(name, problem, f"load it with attn_implementation={MASKED[0]!r}")
    window = getattr(config, "sliding_window", None)
    kinds = set(getattr(config, "layer_types", None) or [FULL if window is None else SLIDING])
    if strange := sorted(kinds - {FULL, SLIDING}):
        raise ModelError(name, f"has layers of the kind {strange[0]}, which no tree mask reaches", "use another target")
    if getattr(model, "_is_stateful", False):
        raise ModelError(name, f"{type(model).__name__} keeps a recurrent state, which no mask undoes", "use another")
    return {kind: window if kind == SLIDING else None for kind in sorted(kinds)}
