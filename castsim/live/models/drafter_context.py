"""A drafter's context of one sequence that grows by the committed positions, in place."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from castsim.live.models.blocks import KeysValues


class Grown:
    """A tensor whose rows, along one axis, grow in place up to a capacity."""

    def __init__(self, capacity: int, axis: int) -> None:
        self.capacity, self.axis = capacity, axis
        self.length = 0
        self._room: Tensor | None = None

    def append(self, rows: Tensor) -> None:
        """Put rows behind the others."""
        count = rows.shape[self.axis]
        if self._room is None:
            shape = list(rows.shape)
            shape[self.axis] = self.capacity
            self._room = rows.new_empty(shape)
        self._room.narrow(self.axis, self.length, count).copy_(rows)
        self.length += count

    def rows(self, more: int = 0) -> Tensor:
        """A view of all rows, and of `more` places behind them that `append` will write over."""
        return self._room.narrow(self.axis, 0, self.length + more)


@dataclass(frozen=True)
class GrownDartContext:
    """`DartContext` that grows."""

    joined_rows: Grown
    residual_rows: Grown
    keys_values_rows: Grown

    @property
    def joined(self) -> Tensor:
        """(B, P, 2 * hidden)."""
        return self.joined_rows.rows()

    @property
    def residual(self) -> Tensor:
        """(B, P, hidden)."""
        return self.residual_rows.rows()

    @property
    def keys_values(self) -> KeysValues:
        """(B, P, G, D) each."""
        return KeysValues(*self.keys_values_rows.rows())
