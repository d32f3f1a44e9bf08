"""Run every example of the gallery and save its picture: docs/assets/gallery/NAME.png.

LOSAC_DATA_DIR=path/to/data python docs/make_gallery.py [NAME …]
"""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


def main(names: list[str]) -> None:
    """Run the examples named, or all."""
    folder = ROOT / "docs" / "assets" / "gallery"
    folder.mkdir(parents=True, exist_ok=True)
    for path in sorted((ROOT / "examples" / "gallery").glob("[0-9]*.py")):
        if not names or path.stem in names:
            print(path.stem, flush=True)
            subprocess.run([sys.executable, str(path), str(folder / f"{path.stem}.png")], check=True)


if __name__ == "__main__":
    main(sys.argv[1:])
