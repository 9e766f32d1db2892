"""castsim policies."""

from __future__ import annotations

from castsim import __version__
from castsim.base import terminal
from castsim.cli import arguments
from castsim.scoring.policies import option_fields
from replay import load_policies


def policies(json_to: arguments.Json = None) -> None:
    """The tree policies and their options.

    \b
    castsim policies
    """
    grid = terminal.table("Policies", "policy", "what it does", "options")
    grid.columns[1].justify = "left"
    grid.columns[1].no_wrap, grid.columns[1].max_width = False, 72
    listed = []
    for name, kind in load_policies().items():
        options = {f.name: f.default for f in option_fields(kind)}
        what = " ".join((kind.__doc__ or "").split("\n\n")[0].split())
        listed.append({"policy": name, "what": what, "options": options, "nested": kind.nested})
        grid.add_row(name, what, ", ".join(f"{k}={v}" for k, v in options.items() if v != ()) or "-")
    terminal.emit({"verb": "policies", "version": __version__, "policies": listed}, [grid], [], json_to)
