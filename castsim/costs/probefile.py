"""Probe files: what `castsim probe` measured, or a table of someone else's; and the published probes by name."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import polars as pl
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from castsim.base.errors import OptionError, PlacedError, first_line
from castsim.base.textfile import is_table, on_grid, read_json, read_table
from castsim.published import CREDIT, frame
from castsim.runs.manifest import Text
from replay.latency import LatencyCurve

Cells = list[list[list[float]]]  # (X, B, P)
MOST_PACKED = 1 << 13  # tokens of a request in one pass; every width up to the last is weighed
MEASURED = Path(__file__).parent / "measured"
OWN = {  # castsim's own, of the pair that it carries; the second has several batch sizes and prefixes
    "pair-cpu": MEASURED / "pair-cpu.json",
    "pair-cpu-batches": MEASURED / "pair-cpu-batches.json",
}


class ProbeError(PlacedError):
    """A probe that no width can be chosen from."""


class Probe(BaseModel):
    """Everything in a probe file.

    `ms`, `samples_ms` and `draft_ms` have the axes of `LatencyCurve`; a flat list is one prefix and one batch size. A
    prefix of 0 alone means that none is known.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    format: Literal["castsim-probe"] = "castsim-probe"
    version: Literal[1] = 1
    source: Text = "a probe file"
    packed: list[int]
    ms: Cells
    prefix: list[int] = Field(default=[0])
    batch: list[int] = Field(default=[1])
    draft_ms: list[list[float | None]] | None = None
    samples_ms: list[list[list[list[float]]]] | None = None
    draft_samples_ms: list[list[list[float]]] | None = None
    target: Text | None = None
    drafter: Text | None = None
    drafter_kind: Text | None = None  # dflash, dart
    depth_max: int | None = None  # L of the drafter
    gpu: Text | None = None
    device: Text | None = None
    dtype: Text | None = None
    attention: Text | None = None
    plain: bool | None = None  # without tree mask and hidden states, as the paper's probe
    warmups: int | None = None  # a shape
    order: Text | None = None
    versions: dict[str, Text] = Field(default_factory=dict)
    notes: list[Text] = Field(default_factory=list)

    def curve(self) -> LatencyCurve:
        """The curve, checked.

        Raises:
            ValueError: see `LatencyCurve`.
        """
        draft = None if self.draft_ms is None else np.array(self.draft_ms, np.float64)  # null becomes NaN
        samples = None if self.samples_ms is None else np.array(self.samples_ms, np.float64)
        return LatencyCurve(
            np.array(self.packed), np.array(self.ms, np.float64), self.prefix, self.batch, draft, samples
        )


def presets() -> list[str]:
    """Names of the published probes."""
    return frame("probes")["preset"].unique(maintain_order=True).to_list()


def open_probe(name: str) -> Probe:
    """A probe by name, or a file: JSON as `castsim probe` writes it, or CSV with columns packed and ms.

    Raises:
        OptionError: neither a file nor a name.
        ProbeError: a file that cannot be read, or whose times no width can be chosen from.
    """
    path = OWN.get(name, Path(name))
    if path.is_file():
        probe = _of_csv(path) if is_table(path) else _of_json(path)
    elif name in presets():
        probe = _preset(name)
    else:
        raise OptionError(f"--probe {name}: is no file and no probe by name; there are {', '.join([*OWN, *presets()])}")
    return _checked(name, probe)


def _checked(name: str, probe: Probe) -> Probe:
    remedy = "measure it with castsim probe"
    probe = _in_order(probe)
    try:
        curve = probe.curve()
    except ValueError as error:
        raise ProbeError(name, first_line(error), remedy) from error
    if len(curve.packed) < 2:
        raise ProbeError(name, "has one packed count, which is no curve", remedy)
    if curve.packed[-1] > MOST_PACKED:
        problem = f"ends at {curve.packed[-1]} packed tokens, and nothing wider than {MOST_PACKED} is priced"
        raise ProbeError(name, problem, "leave out what is wider")
    return probe


def _in_order(probe: Probe) -> Probe:
    """The same with rising axes, its tables sorted along with them."""
    axes = (probe.prefix, probe.batch, probe.packed)
    orders = [sorted(range(len(axis)), key=axis.__getitem__) for axis in axes]
    tables = {"ms": 3, "samples_ms": 3, "draft_ms": 2, "draft_samples_ms": 2}  # axes of each
    changes = {name: _moved(getattr(probe, name), orders[:depth]) for name, depth in tables.items()}
    rising = {name: sorted(axis) for name, axis in zip(("prefix", "batch", "packed"), axes, strict=True)}
    return probe.model_copy(update={**changes, **rising})


def _moved(cells: Any, orders: Sequence[list[int]]) -> Any:
    """Nested lists with each axis in a new order; lists of another length stay, and are refused later."""
    if cells is None or not orders or len(cells) != len(orders[0]):
        return cells
    return [_moved(cells[i], orders[1:]) for i in orders[0]]


def _of_json(path: Path) -> Probe:
    remedy = "name a file that castsim probe wrote, or a CSV with columns packed and ms"
    try:
        found = read_json(path)
        if not isinstance(found, dict):
            raise ProbeError(path, "is no JSON object", remedy)
        return Probe.model_validate(_nested(found))
    except ValidationError as error:
        raise ProbeError(path, _first_fault(error), remedy) from error
    except (OSError, ValueError, RecursionError) as error:
        raise ProbeError(path, f"is not JSON ({first_line(error)})", remedy) from error


def _first_fault(error: ValidationError) -> str:
    first = error.errors()[0]
    place = ".".join(map(str, first["loc"])) or "document"
    return f"{place}: {first['msg'].lower()}"


def _nested(found: dict[str, Any]) -> dict[str, Any]:
    """A hand-written file may give flat times, for one prefix and one batch size."""
    ms, draft = found.get("ms"), found.get("draft_ms")
    if isinstance(ms, list) and ms and not isinstance(ms[0], list):
        found = {**found, "ms": [[ms]]}
    if isinstance(draft, (int, float)):
        found = {**found, "draft_ms": [[draft]]}
    return found


def _of_csv(path: Path) -> Probe:
    remedy = "give columns packed and ms, and if you like draft_ms, prefix and batch"
    try:
        table = read_table(path)
        if missing := {"packed", "ms"} - set(table.columns):
            raise ProbeError(path, f"has no column {min(missing)}", remedy)
        return _of_frame(table, path.name)
    except ValidationError as error:
        raise ProbeError(path, _first_fault(error), remedy) from error
    except (pl.exceptions.PolarsError, OSError, ValueError) as error:
        raise ProbeError(path, f"is no table of times ({first_line(error)})", remedy) from error


def _preset(name: str) -> Probe:
    table = frame("probes").filter(pl.col("preset") == name)
    first = table.row(0, named=True)
    probe = _of_frame(table, f"{CREDIT}, Table {first['table']}".replace("Table H.2", "appendix H.2"))
    facts = {key: first[key] for key in ("gpu", "device", "target")}
    return probe.model_copy(update={**facts, "dtype": "bfloat16", "plain": True, "warmups": 8})


def _of_frame(table: pl.DataFrame, source: str) -> Probe:
    """A probe from rows of packed, ms and optionally prefix, batch and draft_ms, in any order.

    Raises:
        ValueError: a row that is there twice or not at all, or two drafter times of one prefix and batch size.
    """
    defaults = {"prefix": 0, "batch": 1, "draft_ms": None}
    table = table.with_columns(pl.lit(v).alias(k) for k, v in defaults.items() if k not in table.columns)
    rows, axes = on_grid(table, ("prefix", "batch", "packed"))
    shape = tuple(map(len, axes.values()))
    ms = rows["ms"].cast(pl.Float64).fill_null(np.nan).to_numpy().reshape(shape)
    cells = rows.group_by("prefix", "batch", maintain_order=True).agg(
        pl.col("draft_ms").cast(pl.Float64).drop_nulls().unique()
    )
    if len(two := cells.filter(pl.col("draft_ms").list.len() > 1)):
        raise ValueError(f"prefix {two['prefix'][0]}, batch {two['batch'][0]} has two values of draft_ms")
    draft = cells["draft_ms"].list.first().to_list()
    return Probe(
        source=source,
        ms=ms.tolist(),
        draft_ms=[draft[i : i + shape[1]] for i in range(0, len(draft), shape[1])],
        **axes,
    )
