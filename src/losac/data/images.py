"""A folder of images: one subfolder per class, or one per client and in it one per class."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from losac.data.files import DataError

Array = NDArray[Any]
ENDINGS = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".pgm", ".ppm")
_PARTS = {"train", "training", "test", "testing", "val", "valid", "validation"}


def folder_columns(
    folder: Path, size: tuple[int, int] | None = None
) -> tuple[dict[str, Array], str, Mapping[str, tuple[str, ...]]]:
    """Return the columns `x` (uint8 [n, height, width, 1 or 3]), `y` (text) and `client`, if there are clients.

    Args:
        folder: CLASS/picture.png, or CLIENT/CLASS/picture.png.
        size: (height, width) to resize all pictures to; by default all must have the same size.
    """
    from PIL import Image

    files = sorted(path for path in folder.rglob("*") if path.suffix.lower() in ENDINGS)
    if not files:
        raise DataError(
            f"{folder} holds no images ({', '.join(ENDINGS)}); put them into one subfolder per class, or "
            "map a folder of .npy files by losac.data.map_npy"
        )
    parents = [path.relative_to(folder).parts[:-1] for path in files]
    depths = {len(parent) for parent in parents}
    if not (depths == {1} or depths == {2}):
        raise DataError(
            f"{folder} has images at different depths or in no subfolder, such as "
            f"{files[[len(p) for p in parents].index(min(depths))].relative_to(folder)}; "
            "put all into CLASS/ or all into CLIENT/CLASS/"
        )
    if depths == {2} and {parent[0].lower() for parent in parents} <= _PARTS:
        raise DataError(
            f"{folder} has the parts {', '.join(sorted({parent[0] for parent in parents}))}, not clients; read one of "
            "them, and give another as test=FOLDER"
        )
    full = {parent for path in files for parent in path.relative_to(folder).parents}
    empty = [path for path in sorted(folder.rglob("*")) if path.is_dir() and path.relative_to(folder) not in full]
    if empty:
        raise DataError(f"{empty[0]} has no images, so its class or client is empty; fill it, or remove it")
    modes = _check(files, size, folder)
    mode = "L" if modes <= {"1", "L"} else "RGB"
    pixels = []
    for path in files:
        with Image.open(path) as image:
            try:
                shown = image.convert(mode)
            except OSError as error:
                raise DataError(f"{path} is damaged ({error}); remove it") from error
            shown = shown if size is None else shown.resize((size[1], size[0]))
            pixels.append(np.asarray(shown, dtype=np.uint8))
    x = np.stack(pixels)
    arrays: dict[str, Array] = {"x": x[..., None] if mode == "L" else x}
    arrays["y"] = np.array([parent[-1] for parent in parents], dtype=object)
    if depths == {2}:
        arrays["client"] = np.array([parent[0] for parent in parents], dtype=object)
    return arrays, str(folder), {}


def _check(files: list[Path], size: tuple[int, int] | None, folder: Path) -> set[str]:
    """Check the headers of all images: each can be read, all have one size. Return their colour modes."""
    from PIL import Image, UnidentifiedImageError

    modes, first = set(), None
    for path in files:
        try:
            with Image.open(path) as image:
                modes.add(image.mode)
                first = first or image.size
                if size is None and image.size != first:
                    raise DataError(
                        f"{path} is {image.width} x {image.height} pixels, {files[0]} {first[0]} x {first[1]}; "
                        "resize them to one size, such as with size=(28, 28)"
                    )
        except (UnidentifiedImageError, OSError) as error:
            raise DataError(f"{path} is not a readable image; remove it from {folder}") from error
    return modes
