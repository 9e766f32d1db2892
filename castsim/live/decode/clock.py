"""When a decode's window opens and closes, and how long the parts of its rounds take."""

from __future__ import annotations

import time

import torch


class Stopwatch:
    """Times one decode; a device is waited for before every reading.

    Waiting after each part costs a GPU its overlap with the host, so parts are read only when asked for.

    Attributes:
        by_part: read the clock after every part of a round.

    Source: the timing window of appendix D: it opens just before the first verification, so behind prefill and the
    first draft, and closes when the output has been cut to its end.
    """

    def __init__(self, device: torch.device, by_part: bool = False) -> None:
        self.by_part = by_part
        self._device = device
        self._opened: float | None = None
        self._closed: float | None = None
        self._laps: list[float] = []

    def start(self) -> None:
        """A round begins."""
        self._laps = [self._now()] if self.by_part else []

    def lap(self) -> None:
        """A part of the round ends."""
        if self.by_part:
            self._laps.append(self._now())

    def open(self) -> None:
        """The first call opens the window."""
        if self._opened is None:
            self._opened = self._now()

    def close(self) -> None:
        """The window ends."""
        self._closed = self._now()

    @property
    def parts_ms(self) -> tuple[float, ...]:
        """Milliseconds of each of `advice.forecast.PARTS` in the round that ended last; empty unless `by_part`."""
        return tuple(1e3 * (b - a) for a, b in zip(self._laps, self._laps[1:], strict=False))

    @property
    def window_ms(self) -> float:
        """Milliseconds of the window; 0 where prefill gave all of the output."""
        return 0.0 if self._opened is None or self._closed is None else 1e3 * (self._closed - self._opened)

    def _now(self) -> float:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        return time.perf_counter()
