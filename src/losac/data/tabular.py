"""Text tables: CSV and similar files, with one clear error for each way such a file can be broken."""

import contextlib
import csv
import gzip
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING

from losac.data.files import DataError

if TYPE_CHECKING:
    import pandas as pd

MOST_COLUMNS = 100_000
"""The most columns of a table; wider data should be an array."""
_SEPARATORS = ",;\t|"
_LONGEST_HEADER = 2**26


def is_text_file(path: Path) -> bool:
    """Whether a file is a table of text, by its name."""
    return path.name.removesuffix(".gz").endswith((".csv", ".tsv", ".txt"))


def check_width(count: int, origin: str) -> None:
    """Refuse a table with too many columns."""
    if count > MOST_COLUMNS:
        raise DataError(
            f"{origin} has {count:,} columns, more than the {MOST_COLUMNS:,} that a table may have; save the numbers "
            "as one array instead: np.savez(file, x=…, y=…)"
        )


def text_header(path: Path, encoding: str) -> list[str]:
    """Return the names in the first line of a text table; check that it is text and not too wide."""
    try:
        with _opened(path, encoding) as stream:
            line = stream.readline(_LONGEST_HEADER)
    except (UnicodeDecodeError, gzip.BadGzipFile, EOFError) as error:
        raise _unreadable(path, encoding, error) from error
    if not line.strip():
        raise DataError(f"{path} begins with an empty line; its first line must name the columns")
    separator = _separator(line)
    check_width(line.count(separator) + 1, str(path))
    return [name.strip() for name in next(csv.reader([line.lstrip("\ufeff")], delimiter=separator))]


def read_text(path: Path, wanted: Sequence[str] | None, encoding: str) -> "pd.DataFrame":
    """Read a text table with column names in the first line; the separator is the most frequent one in that line."""
    (frame,) = text_batches(path, wanted, encoding, None)
    return frame


def text_batches(path: Path, wanted: Sequence[str] | None, encoding: str, rows: int | None) -> Iterator["pd.DataFrame"]:
    """Read a text table `rows` rows at a time, or all at once; see `read_text`."""
    import pandas as pd

    names = text_header(path, encoding)
    with _opened(path, encoding) as stream:
        separator = _separator(stream.readline(_LONGEST_HEADER))
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise DataError(f"{path} has two columns {twice!r}; rename one of them")
    with _one_clear_error(path, encoding, separator, len(names)):
        reader = pd.read_csv(
            path,
            sep=separator,
            encoding="utf-8-sig" if encoding == "utf-8" else encoding,
            index_col=False,
            low_memory=False,
            header=0,
            names=names,
            usecols=None if wanted is None else list(wanted),
            iterator=True,
        )
    with reader:
        some = False
        while True:
            with _one_clear_error(path, encoding, separator, len(names)):
                try:
                    frame = reader.read(rows)
                except StopIteration:
                    break
            if len(frame) == 0:
                break
            if frame.iloc[:, -1].isna().any() and (uneven := ragged(path, encoding, separator, len(names))):
                raise uneven
            some = True
            yield frame
    if not some:
        raise DataError(f"{path} has a header but no rows; add rows, or give another file")


@contextlib.contextmanager
def _one_clear_error(path: Path, encoding: str, separator: str, fields: int) -> Iterator[None]:
    """Turn the parser's message about a broken file into one error that names the line and what to do."""
    import pandas as pd

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)
            yield
    except (UnicodeDecodeError, gzip.BadGzipFile, EOFError) as error:
        raise _unreadable(path, encoding, error) from error
    except (pd.errors.ParserError, pd.errors.ParserWarning) as error:
        raise ragged(path, encoding, separator, fields) or DataError(
            f"{path} cannot be read as a table ({error}); look for quotes that are not closed"
        ) from error


def ragged(path: Path, encoding: str, separator: str, fields: int) -> DataError | None:
    """Return the error of the first line that has more or fewer fields than the header, if there is one."""
    with _opened(path, encoding) as stream:
        reader = csv.reader(stream, delimiter=separator)
        for row in reader:
            if row and len(row) != fields:
                return DataError(
                    f"{path} is ragged: line {reader.line_num} has {len(row)} fields, the header {fields}; "
                    "quote texts that contain the separator, or correct that line"
                )
    return None


def _opened(path: Path, encoding: str) -> IO[str]:
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding=encoding, newline="")
    return path.open(encoding=encoding, newline="")


def _separator(header: str) -> str:
    return max(_SEPARATORS, key=header.count)


def _unreadable(path: Path, encoding: str, error: Exception) -> DataError:
    if isinstance(error, UnicodeDecodeError):
        byte = error.object[error.start]
        return DataError(
            f"{path} is not {encoding} text (byte 0x{byte:02x} is no character of it); give its encoding, such as "
            "encoding='latin-1', or save it as UTF-8"
        )
    return DataError(f"{path} cannot be unpacked ({error}); write it again")
