"""Data sets whose published files are kept as they are: where they come from, how they are checked and found."""

import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from losac._files import write_whole
from losac._folders import cache_dir
from losac.data.download import DownloadError, download_file
from losac.data.files import DataError, given_dir
from losac.data.tables import Table

RECORDED = ".sha256"
"""The ending of the file beside a download that holds the digest it had when it was new."""
LARGEST = 2**31
"""Bytes of the largest file whose checksum is computed each time it is read."""


@dataclass(frozen=True)
class PublicFile:
    """A published file: its name, its addresses (the first that answers wins), and its checksum.

    The checksum is ``md5:…`` or ``sha256:…`` as its publishers or the libraries of the field state it. None: it is not
    stated anywhere, and is recorded when the file is downloaded first.
    """

    name: str
    urls: tuple[str, ...]
    checksum: str | None = None


@dataclass(frozen=True)
class KeptSet:
    """A data set in published files.

    Attributes:
        name: what `load` calls it.
        description: one line about it.
        files: its files.
        table: ``(files, rng, **options) -> Table``, with the path of every file by name.
        terms: what the authors ask of users, and whom to cite.
        default_clients: N where the rows have no owners.
        natural: whether the rows have owners, which are the clients by default.
    """

    name: str
    description: str
    files: tuple[PublicFile, ...]
    table: Callable[..., Table]
    terms: str
    default_clients: int = 100
    natural: bool = False


def find_files(
    kept: KeptSet, *, data_dir: str | os.PathLike[str] | None = None, download: bool = True
) -> dict[str, Path]:
    """Return the verified files of a data set, by name.

    They are looked for in `data_dir`, or else in `LOSAC_DATA_DIR` (there or in a folder of the data set's name), then
    in the cache, and are downloaded if they are in neither.
    """
    given = given_dir(data_dir)
    folders = [cache_dir() / kept.name] if given is None else [given[0] / kept.name, given[0], cache_dir() / kept.name]
    return {file.name: _find(kept, file, folders, download) for file in kept.files}


def fetch_files(
    kept: KeptSet, *, base_url: str | None = None, progress: bool = True, timeout: float = 30.0, pause: float = 1.0
) -> Path:
    """Download the files of a data set into the cache, and check them; return their folder."""
    for file in kept.files:
        _download(kept, file, base_url=base_url, progress=progress, timeout=timeout, pause=pause)
    return cache_dir() / kept.name


def _find(kept: KeptSet, file: PublicFile, folders: list[Path], download: bool) -> Path:
    for folder in folders:
        path = folder / file.name
        if path.is_file():
            if path.stat().st_size <= LARGEST:
                _check(kept, file, path)
            return path
    if not download:
        raise DataError(
            f"{file.name} of the data set {kept.name!r} is in none of {', '.join(map(str, folders))}, and "
            f"download=False. {_way_out(kept)}"
        )
    return _download(kept, file)


def _download(
    kept: KeptSet,
    file: PublicFile,
    *,
    base_url: str | None = None,
    progress: bool = True,
    timeout: float = 30.0,
    pause: float = 1.0,
) -> Path:
    path, failures = cache_dir() / kept.name / file.name, []
    for url in (f"{base_url.rstrip('/')}/{file.name}",) if base_url else file.urls:
        try:
            new = download_file(
                url, path.with_name(f"{file.name}.new"), timeout=timeout, pause=pause, progress=progress
            )
            break
        except DownloadError as error:
            failures.append(str(error))
    else:
        raise DataError(
            f"{file.name} of the data set {kept.name!r} could not be downloaded from {'; '.join(failures)}. "
            f"{_way_out(kept)}"
        )
    try:
        _check(kept, file, new)
    except DataError:
        new.unlink()
        raise
    os.replace(new, path)
    if file.checksum is None:
        write_whole(path.with_name(path.name + RECORDED), digest_of(path, "sha256"))
    return path


def _check(kept: KeptSet, file: PublicFile, path: Path) -> None:
    """Refuse a file with another checksum than the published one, or else than the one that was recorded."""
    recorded = path.with_name(path.name + RECORDED)
    wanted = file.checksum or (f"sha256:{recorded.read_text().strip()}" if recorded.is_file() else None)
    if wanted is None:
        return
    kind, _, value = wanted.partition(":")
    found = digest_of(path, kind)
    if found != value:
        raise DataError(
            f"{path} is not the expected file of the data set {kept.name!r}: expected {kind} {value}, found {found}. "
            f"{_way_out(kept)}"
        )


def digest_of(path: Path, kind: str) -> str:
    """Return the digest of a file as hexadecimal digits."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, lambda: hashlib.new(kind, usedforsecurity=False)).hexdigest()


def _way_out(kept: KeptSet) -> str:
    names = ", ".join(file.name for file in kept.files)
    return (
        f"Run `losac data download {kept.name}` when there is a network, or set LOSAC_DATA_DIR to a folder with "
        f"{names}."
    )
