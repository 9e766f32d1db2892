"""Pictures. A figure is drawn from the JSON document that its verb prints, so that a picture shows those numbers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from castsim.base.errors import OptionError

COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00")  # Okabe and Ito, safe for the colour-blind
ALL = "#000000"
ENDINGS = (".png", ".svg", ".pdf")
STYLE = Path(__file__).parents[1] / "castsim.mplstyle"


def check_plot(file: Path | None) -> None:
    """Refuse, before any work is done, a picture of a kind that is not drawn.

    Raises:
        OptionError: another ending.
    """
    if file is not None and file.suffix not in ENDINGS:
        raise OptionError(f"--plot {file}: name a {', '.join(ENDINGS[:-1])} or {ENDINGS[-1]} file")


@contextmanager
def canvas(file: Path, rows: int, columns: int, size: tuple[float, float], title: str) -> Iterator[Any]:
    """Axes (rows, columns) of a figure that is written to a file when they are left."""
    with _drawn([file], rows, columns, size, title) as axes:
        yield axes


@contextmanager
def styled(
    folder: Path, name: str, rows: int, columns: int, size: tuple[float, float], title: str, layout: str = "constrained"
) -> Iterator[Any]:
    """Axes of a figure that is written as PNG and SVG, without a date, so that equal numbers give equal files."""
    with _drawn([folder / f"{name}.png", folder / f"{name}.svg"], rows, columns, size, title, layout) as axes:
        yield axes


@contextmanager
def _drawn(
    files: list[Path], rows: int, columns: int, size: tuple[float, float], title: str, layout: str = "constrained"
) -> Iterator[Any]:
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot as plt

    with plt.style.context(STYLE):
        figure, axes = plt.subplots(rows, columns, figsize=size, layout=layout, squeeze=False)
        try:
            yield axes
            figure.suptitle(title, fontsize=10, x=0.01, ha="left")
            for file in files:
                figure.savefig(file, metadata={"Date": None} if file.suffix == ".svg" else None)
        finally:
            plt.close(figure)
