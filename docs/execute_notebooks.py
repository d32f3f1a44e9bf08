"""Run the notebooks and store what they print and draw: `make notebooks`.

Pictures are stored with few colours, and nothing that changes from run to run (times, identifiers of kernels) is kept.
"""

from __future__ import annotations

import base64
import io
import sys
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

FOLDER = Path(__file__).resolve().parent.parent / "notebooks"
COLOURS = 64


def main() -> None:
    """Execute all notebooks, or those named on the command line."""
    for path in sorted(FOLDER.glob("*.ipynb")):
        if len(sys.argv) > 1 and path.name not in sys.argv[1:]:
            continue
        notebook = execute(path)
        tidy(notebook)
        nbformat.write(notebook, path)
        print(f"{path} ({path.stat().st_size // 1000} kB)", flush=True)


def execute(path: Path, folder: Path = FOLDER) -> Any:
    """Return a notebook after running all of its cells in a folder."""
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(folder)}}).execute()
    return notebook


def tidy(notebook: Any) -> None:
    """Remove what is not worth keeping, and make pictures small."""
    notebook.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    for cell in notebook.cells:
        cell.metadata = {}
        for output in cell.get("outputs", []):
            output.pop("metadata", None) if output.output_type == "stream" else output.update(metadata={})
            data = output.get("data", {})
            if "image/png" in data:
                output["data"] = {"image/png": smaller(data["image/png"]), "text/plain": "<Figure>"}


def smaller(png: str) -> str:
    """Return a picture with few colours."""
    from PIL import Image

    picture = Image.open(io.BytesIO(base64.b64decode(png))).convert("RGB")
    written = io.BytesIO()
    picture.quantize(COLOURS, dither=Image.Dither.NONE).save(written, "png", optimize=True)
    return base64.b64encode(written.getvalue()).decode()


if __name__ == "__main__":
    main()
