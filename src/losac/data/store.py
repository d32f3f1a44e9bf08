"""From a data set's name to its verified arrays: a folder, the cache, or the public source."""

import os
import shutil
import warnings
from pathlib import Path

from losac._folders import cache_dir
from losac.data.download import DownloadError, download_file
from losac.data.files import (
    Arrays,
    DataError,
    content_digest,
    given_dir,
    read_npz,
    way_out,
    write_npz,
)
from losac.data.names import look_up
from losac.data.sets import SETS
from losac.data.sets.kept import KeptSet, fetch_files
from losac.data.sources import SOURCES, Source


def fetch(name: str, *, base_url: str | None = None, progress: bool = True) -> Path:
    """Download the data set `name`, check it, and keep it in the cache; return the npz file, or the files' folder.

    What is in the cache is replaced, so this also repairs a damaged file.

    Args:
        name: of a data set that can be downloaded.
        base_url: take the files from this address instead of the public sources.
        progress: show a progress bar on standard error.

    Raises:
        DataError: the source cannot be reached, or does not hold the expected data.
    """
    known: dict[str, Source | KeptSet] = {**SOURCES, **SETS}
    found = look_up(name, known, "data set to download")
    if isinstance(found, KeptSet):
        return fetch_files(found, base_url=base_url, progress=progress)
    return fetch_source(found, base_url=base_url, progress=progress)


def fetch_source(
    source: Source,
    *,
    base_url: str | None = None,
    progress: bool = True,
    retries: int = 2,
    timeout: float = 30.0,
    pause: float = 1.0,
) -> Path:
    """Download, read, check and cache the arrays of `source`; see `fetch`."""
    target = cache_dir() / f"{source.name}.npz"
    raw = cache_dir() / "raw" / source.name
    files: dict[str, Path] = {}
    for file, urls in source.files.items():
        failures = []
        for url in (f"{base_url.rstrip('/')}/{file}",) if base_url else urls:
            try:
                files[file] = download_file(
                    url, raw / file, retries=retries, timeout=timeout, pause=pause, progress=progress
                )
                break
            except DownloadError as error:
                failures.append(str(error))
        else:
            raise DataError(
                f"{file} of the data set {source.name!r} could not be downloaded from {'; '.join(failures)}. "
                f"Run `losac data download {source.name}` again when there is a network, "
                f"or set LOSAC_DATA_DIR to a folder with {source.name}.npz."
            )
    try:
        arrays = source.read(files)
    except Exception as error:
        shutil.rmtree(raw)
        raise DataError(
            f"{', '.join(files)} of the data set {source.name!r} cannot be read "
            f"({type(error).__name__}: {error}); expected content sha256 {source.digest}. "
            f"{way_out(source.name)}"
        ) from error
    shutil.rmtree(raw)
    found = content_digest(arrays)
    if found != source.digest:
        raise DataError(
            f"{', '.join(files)} of the data set {source.name!r} hold other data than expected: "
            f"expected content sha256 {source.digest}, found {found}. {way_out(source.name)}"
        )
    write_npz(target, arrays)
    return target


def find_arrays(source: Source, *, data_dir: str | os.PathLike[str] | None = None, download: bool = True) -> Arrays:
    """Return the verified arrays of `source` from the first place that has them.

    The order is `data_dir`, or else the folder `LOSAC_DATA_DIR`; the cache; the public source. A damaged file is an
    error and never silently skipped.
    """
    file = f"{source.name}.npz"
    given = given_dir(data_dir)
    if given is not None:
        folder, who = given
        if (folder / file).exists():
            return read_npz(folder / file, source.digest)
        warnings.warn(
            f"{who}={folder} has no {file}: looking in the cache {cache_dir()}"
            + (", then downloading it" if download else ""),
            stacklevel=2,
        )
    cached = cache_dir() / file
    if not cached.exists():
        if not download:
            raise DataError(
                f"{file} is missing (expected content sha256 {source.digest}): it is not in the cache "
                f"{cache_dir()} and download=False. Run `losac data download {source.name}`, "
                f"or set LOSAC_DATA_DIR to a folder with {file}."
            )
        fetch_source(source)
    return read_npz(cached, source.digest)
