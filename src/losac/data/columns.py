"""What users have (files, frames, data sets of other libraries) as named columns, one array each.

Nothing is interpreted here: text stays text, missing values stay missing (NaN in numbers, None elsewhere).
The packages that sources come from are never imported: anyone who has such an object has loaded them already.
"""

import os
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from losac._checks import described
from losac.data import containers
from losac.data.checks import check_dense
from losac.data.files import DataError
from losac.data.images import folder_columns
from losac.data.names import nearest
from losac.data.tabular import check_width, is_text_file, read_text, text_batches, text_header

if TYPE_CHECKING:
    import pandas as pd

Array = NDArray[Any]
Source: TypeAlias = Any
TABLES = (".csv", ".tsv", ".txt", ".csv.gz", ".parquet")
FILES = (*TABLES, ".npz", *containers.ENDINGS)
"""What a file's name may end with; tables can be read some rows at a time."""
_TEST = "_test"


@dataclass(frozen=True)
class Columns:
    """Named columns of equal length, and the names of labels in some of them, if the source has names."""

    arrays: Mapping[str, Array]
    origin: str
    label_names: Mapping[str, tuple[str, ...]]

    @property
    def rows(self) -> int:
        """The number of rows."""
        return len(next(iter(self.arrays.values()))) if self.arrays else 0

    def find(self, name: str, role: str) -> str:
        """Return the name of an existing column; otherwise suggest the nearest name."""
        if name in self.arrays:
            return name
        raise DataError(missing_column(self.origin, name, list(self.arrays), role))


def missing_column(origin: str, name: str, known: Sequence[str], role: str) -> str:
    """Say that a column does not exist, with the nearest name and some that do."""
    some = ", ".join(known[:8]) + (f", … ({len(known)} in all)" if len(known) > 8 else "")
    return f"{origin} has no column {name!r} for {role}; its columns are {some}.{nearest(name, known)}"


def columns(
    source: Source,
    wanted: Sequence[str] | None = None,
    *,
    encoding: str = "utf-8",
    size: tuple[int, int] | None = None,
) -> Columns:
    """Return the columns of one source.

    Args:
        source: a file (`FILES`), a folder of images or IDX files, a pandas or polars frame, a Hugging Face
            `Dataset`, a PyTorch data set of (x, y), a mapping of arrays, a pair (x, y) of arrays.
        wanted: the columns to read; all by default. Missing ones are reported later.
        encoding: of a CSV file.
        size: (height, width) to resize the images of a folder to.
    """
    if isinstance(source, str) and not source.strip():
        raise DataError("the source is an empty text; give the path of a file or a folder")
    if isinstance(source, str | os.PathLike):
        path = Path(source).expanduser()
        if containers.holds_idx(path):
            return _of_arrays(_trained(containers.arrays_of(path)), str(path))
        return Columns(*folder_columns(path, size)) if path.is_dir() else _of_file(path, wanted, encoding)
    library = type(source).__module__.partition(".")[0]
    if library == "polars":
        frame = source.collect() if hasattr(source, "collect") else source
        check_width(len(frame.columns), "the polars frame")
        return _of_frame(frame.to_pandas(), wanted, "the polars frame")
    if library == "pandas" and hasattr(source, "columns"):
        return _of_frame(source, wanted, "the pandas frame")
    if library == "datasets":
        return _of_hugging_face(source, wanted)
    if isinstance(source, Mapping):
        return _of_arrays(
            {str(k): _array(v, f"column {str(k)!r} of the mapping") for k, v in source.items()}, "the mapping"
        )
    if isinstance(source, tuple) and len(source) == 2:
        x, y = _array(source[0], "x of the pair"), _array(source[1], "y of the pair")
        return _of_arrays({"x": x, "y": y}, "the pair (x, y)")
    if _has_items(source, library):
        return _of_items(source)
    raise DataError(
        f"{described(source)} cannot be read; give a file ({', '.join(FILES)}), a folder of images, a frame, "
        "a Hugging Face Dataset, or a PyTorch data set with a length and (x, y) items"
    )


def _has_items(source: Any, library: str) -> bool:
    """Whether a source may be a map-style data set."""
    items = hasattr(source, "__getitem__") and hasattr(source, "__len__")
    return items and library != "pandas" and not isinstance(source, np.ndarray | bytes | bytearray)


def batches(path: Path, wanted: Sequence[str], encoding: str, rows: int) -> Iterator[Columns]:
    """Return some columns of a CSV or Parquet file, `rows` rows at a time; the columns must exist."""
    if is_text_file(path):
        for frame in text_batches(path, wanted, encoding, rows):
            yield _of_frame(frame, wanted, str(path))
        return
    from pyarrow import parquet

    with parquet.ParquetFile(path) as file:
        for batch in file.iter_batches(rows, columns=list(wanted)):
            yield _of_frame(batch.to_pandas(), wanted, str(path))


def column_names(path: Path, encoding: str) -> list[str]:
    """Return the names of the columns of a CSV or Parquet file, without reading its rows."""
    if is_text_file(path):
        return text_header(path, encoding)
    from pyarrow import parquet

    return list(parquet.read_schema(path).names)


def joined(parts: Iterable[Columns]) -> Columns:
    """Put the rows of several sources below each other; all must have the same columns, and rows of one shape."""
    every = list(parts)
    first = every[0]
    for other in every[1:]:
        for name in first.arrays:
            if name not in other.arrays:
                raise DataError(missing_column(other.origin, name, list(other.arrays), f"what {first.origin} has"))
            mine, theirs = first.arrays[name].shape[1:], other.arrays[name].shape[1:]
            if mine != theirs:
                raise DataError(
                    f"column {name!r} has rows of shape {theirs} in {other.origin}, of shape {mine} in "
                    f"{first.origin}; give all the same shape"
                )
    arrays = {name: _below([part.arrays[name] for part in every]) for name in first.arrays}
    return Columns(arrays, first.origin, first.label_names)


def is_missing(array: Array) -> NDArray[np.bool_]:
    """Return which entries of a column are missing, or have a missing part; infinite numbers are not missing."""
    if array.dtype.kind == "f":
        return np.asarray(np.isnan(array).any(axis=tuple(range(1, array.ndim))))
    if array.dtype.kind in "mM":
        return np.isnat(array)
    if array.dtype.kind == "O" and array.ndim == 1:
        return np.array([value is None or value != value for value in array.tolist()], dtype=bool)
    return np.zeros(len(array), dtype=bool)


def _below(arrays: Sequence[Array]) -> Array:
    kinds = {array.dtype.kind for array in arrays}
    if kinds & set("OUSmM") and len(kinds) > 1:
        return np.concatenate([array.astype(object) for array in arrays])
    return np.concatenate(arrays)


def _of_file(path: Path, wanted: Sequence[str] | None, encoding: str) -> Columns:
    if not path.exists():
        there = sorted(p.name for p in path.parent.iterdir()) if path.parent.is_dir() else []
        raise DataError(f"{path} does not exist; check the path.{nearest(path.name, there)}")
    if path.stat().st_size == 0:
        raise DataError(f"{path} is empty (0 bytes); write it again, or give another file")
    if is_text_file(path):
        known = text_header(path, encoding)
        return _of_frame(read_text(path, _there(wanted, known), encoding), None, str(path))
    if path.suffix == ".parquet":
        return _of_parquet(path, wanted)
    if path.suffix == ".npz":
        return _of_npz(path)
    if path.name.endswith(containers.ARROW):
        return _of_frame(containers.arrow_frame(path), wanted, str(path))
    if path.name.endswith(containers.ENDINGS):
        return _of_arrays(_trained(containers.arrays_of(path)), str(path))
    raise DataError(f"{path} has the ending {path.suffix!r}; known are {', '.join(FILES)}, and folders of images")


def _there(wanted: Sequence[str] | None, known: Sequence[str]) -> list[str] | None:
    """Return the wanted columns; None, for all, if one does not exist: the error can then name some."""
    return list(wanted) if wanted is not None and set(wanted) <= set(known) else None


def _of_parquet(path: Path, wanted: Sequence[str] | None) -> Columns:
    import pyarrow as pa
    from pyarrow import parquet

    try:
        known = parquet.read_schema(path).names
        check_width(len(known), str(path))
        table = parquet.read_table(path, columns=_there(wanted, known))
        return _of_frame(table.to_pandas(ignore_metadata=True), None, str(path))
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path} cannot be read as Parquet ({_first_line(error)}); write it again") from error


def held_columns(source: Source) -> Columns | None:
    """Return the arrays x_test, y_test, … of a file, or the test part of a folder of IDX files; None without one."""
    if not isinstance(source, str | os.PathLike):
        return None
    path = Path(source).expanduser()
    if containers.holds_idx(path) or path.name.endswith(containers.HDF5):
        arrays = containers.arrays_of(path)
    elif path.suffix == ".npz":
        arrays = _arrays_of(path)
    else:
        return None
    held = {name.removesuffix(_TEST): a for name, a in arrays.items() if name.endswith(_TEST)}
    return _of_arrays(held, f"the test part of {path}") if held else None


def _trained(arrays: Mapping[str, Array]) -> dict[str, Array]:
    """Return the arrays that are not of the test part."""
    return {name.removesuffix("_train"): a for name, a in arrays.items() if not name.endswith(_TEST)}


def _of_npz(path: Path) -> Columns:
    """Return the arrays of an archive as columns, without those (except x and y) with another number of rows."""
    held = _trained(_arrays_of(path))
    if "x" in held and held["x"].ndim:
        rows = held["x"].shape[:1]
        held = {name: a for name, a in held.items() if name in ("x", "y") or a.shape[:1] == rows}
    return _of_arrays(held, str(path))


def _arrays_of(path: Path) -> dict[str, Array]:
    try:
        with zipfile.ZipFile(path), np.load(path, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise DataError(
            f"{path} cannot be read as NPZ ({_first_line(error)}); write it by np.savez(file, x=…, y=…) with arrays "
            "of numbers or text, not of objects"
        ) from error


def _of_arrays(arrays: Mapping[str, Array], origin: str) -> Columns:
    if not arrays:
        raise DataError(f"{origin} holds no arrays; it needs at least the inputs x and the targets y")
    for name, array in arrays.items():
        if array.ndim == 0:
            raise DataError(f"{name!r} of {origin} is a single value; give one entry per row")
    lengths = {name: len(array) for name, array in arrays.items()}
    if len(set(lengths.values())) > 1:
        told = ", ".join(f"{name} has {length}" for name, length in lengths.items())
        raise DataError(
            f"the arrays of {origin} have different numbers of rows: {told}; leave out arrays that are not columns"
        )
    return Columns(dict(arrays), origin, {})


def _of_frame(frame: "pd.DataFrame", wanted: Sequence[str] | None, origin: str) -> Columns:
    check_width(frame.shape[1], origin)
    names = [str(name) for name in frame.columns]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise DataError(f"{origin} has two columns {twice!r}; rename one of them")
    chosen = _there(wanted, names) or names
    arrays = {name: _of_series(frame.iloc[:, at]) for at, name in enumerate(names) if name in chosen}
    return Columns(arrays, origin, {})


def _of_series(series: Any) -> Array:
    """Return a column as NumPy: numbers unchanged, missing ones NaN; everything else as objects, missing ones None."""
    import pandas as pd

    kind = series.dtype
    if isinstance(kind, np.dtype) and kind.kind in "biufmM":
        return np.asarray(series)
    if not isinstance(kind, np.dtype | pd.CategoricalDtype) and pd.api.types.is_numeric_dtype(kind):
        if series.isna().any():
            return np.asarray(series.to_numpy(dtype=np.float64, na_value=np.nan))
        return np.asarray(series.to_numpy(dtype=getattr(kind, "numpy_dtype", np.float64)))
    values = series.astype(object)
    array = np.asarray(values.where(series.notna(), None), dtype=object)
    return _stacked(array, str(series.name)) if len(array) and isinstance(array[0], np.ndarray | list) else array


def _array(values: Any, what: str) -> Array:
    check_dense(values, what)
    return np.asarray(values)


def _stacked(rows: Any, name: str) -> Array:
    """Return a column of arrays as one array; all entries must have the same shape."""
    arrays = [_array(row, f"row {at} of column {name!r}") for at, row in enumerate(rows)]
    for at, array in enumerate(arrays):
        if array.shape != arrays[0].shape:
            raise DataError(
                f"column {name!r} has an entry of shape {array.shape} in row {at} and of shape {arrays[0].shape} in "
                "row 0; bring all to one shape (images: resize them) first"
            )
    return np.stack(arrays)


def _of_hugging_face(source: Any, wanted: Sequence[str] | None) -> Columns:
    if not hasattr(source, "select_columns") or not hasattr(source, "__len__"):
        raise DataError(
            f"a Hugging Face {type(source).__name__} cannot be read as one table; give a Dataset, such as "
            "dataset['train']"
        )
    known = list(source.column_names)
    check_width(len(known), "the Hugging Face Dataset")
    chosen = _there(wanted, known) or known
    if len(source) == 0:
        return Columns({name: np.empty(0) for name in chosen}, "the Hugging Face Dataset", {})
    rows = source.select_columns(chosen).with_format("numpy")[:]
    arrays = {}
    for name in chosen:
        values = rows[name]
        objects = not isinstance(values, np.ndarray) or values.dtype.kind == "O"
        if objects and isinstance(values[0], np.ndarray | list):
            values = _stacked(values, name)
        declared = getattr(source.features[name], "dtype", None)
        arrays[name] = np.asarray(values, dtype=np.uint8 if declared == "uint8" else None)
    named = {
        name: tuple(feature.names)
        for name, feature in source.features.items()
        if name in chosen and getattr(feature, "names", None)
    }
    return Columns(arrays, "the Hugging Face Dataset", named)


def _of_items(source: Any) -> Columns:
    """Return x and y of a map-style data set, such as PyTorch's."""
    origin = f"the {type(source).__name__}"
    if len(source) == 0:
        raise DataError(f"{origin} is empty; give at least one (x, y) item")
    tensors = getattr(source, "tensors", None)
    if tensors is not None and len(tensors) == 2:
        return _of_arrays({"x": np.asarray(tensors[0]), "y": np.asarray(tensors[1])}, origin)
    first = source[0]
    if not isinstance(first, tuple | list) or len(first) != 2:
        raise DataError(f"item 0 of {origin} is a {type(first).__name__}; its items must be pairs (x, y)")
    pairs = [source[at] for at in range(len(source))]
    return Columns(
        {"x": _stacked([x for x, _ in pairs], "x"), "y": np.stack([np.asarray(y) for _, y in pairs])}, origin, {}
    )


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)
