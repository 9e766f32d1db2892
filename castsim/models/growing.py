"""A drafter's context of one sequence that grows by the committed positions, in place."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from castsim.models.blocks import KeysValues


class Grown:
    """A tensor (B, rows, ...) that grows in place up to a capacity."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.length = 0
        self._room: Tensor | None = None

    def append(self, rows: Tensor) -> None:
        """Put rows (B, n, ...) behind the others."""
        if self._room is None:
            self._room = rows.new_empty(rows.shape[0], self.capacity, *rows.shape[2:])
        self._room[:, self.length : self.length + rows.shape[1]] = rows
        self.length += rows.shape[1]

    @property
    def rows(self) -> Tensor:
        """(B, length, ...), a view."""
        return self._room[:, : self.length]


@dataclass(frozen=True)
class GrownKeysValues:
    """`KeysValues` of a layer that grow."""

    keys: Grown
    values: Grown

    @property
    def k(self) -> Tensor:
        """(B, P, G, D)."""
        return self.keys.rows

    @property
    def v(self) -> Tensor:
        """(B, P, G, D)."""
        return self.values.rows

    def append(self, new: KeysValues) -> None:
        """Put those of some rows behind the others."""
        self.keys.append(new.k)
        self.values.append(new.v)


@dataclass(frozen=True)
class GrownDartContext:
    """`DartContext` that grows."""

    joined_rows: Grown
    residual_rows: Grown
    keys_values: GrownKeysValues

    @property
    def joined(self) -> Tensor:
        """(B, P, 2 * hidden)."""
        return self.joined_rows.rows

    @property
    def residual(self) -> Tensor:
        """(B, P, hidden)."""
        return self.residual_rows.rows
