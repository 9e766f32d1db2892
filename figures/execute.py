"""Run the notebooks and write their outputs: python figures/execute.py [NAME ...]

The percent scripts are the sources; each .ipynb is its script, executed. Outputs hold no times and no paths, so that a
second run gives the same text.
"""

import sys
from pathlib import Path

import jupytext
import nbformat
from nbclient import NotebookClient

HERE = Path(__file__).parent
TIMEOUT_S = 600


def sources() -> list[Path]:
    """The percent scripts."""
    return sorted(HERE.glob("0*.py"))


def executed(source: Path) -> nbformat.NotebookNode:
    """A script as a notebook with its outputs; an error in a cell is raised."""
    notebook = jupytext.read(source)
    NotebookClient(
        notebook, timeout=TIMEOUT_S, kernel_name="python3", resources={"metadata": {"path": str(HERE)}}
    ).execute()
    for number, cell in enumerate(notebook.cells):
        cell.id = f"cell-{number}"  # nbformat draws ids at random
        cell.metadata.pop("execution", None)  # times
    notebook.metadata["language_info"] = {"name": "python"}  # not this machine's version of it
    return notebook


def texts(notebook: nbformat.NotebookNode) -> list[str]:
    """What each cell prints, pictures left out; a kernel cuts its prints into pieces as it pleases."""
    found = []
    for cell in notebook.cells:
        streams = [output.text for output in cell.get("outputs", []) if output.output_type == "stream"]
        if streams:
            found.append("".join(streams))
    return found


def main() -> None:
    """Execute all, or those named."""
    for source in sources():
        if len(sys.argv) == 1 or source.stem in sys.argv[1:]:
            nbformat.write(executed(source), source.with_suffix(".ipynb"))
            print(source.with_suffix(".ipynb").name)


if __name__ == "__main__":
    main()
