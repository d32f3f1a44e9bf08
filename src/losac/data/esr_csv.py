"""The published CSV of Epileptic Seizure Recognition, restored to the order of its recordings.

The CSV was made in R: the five sets of Bonn recordings (A to E, labelled 5 to 1) were cut into
chunks, named `X<chunk>.V1.<file>` set by set, stacked with `rbind`, and shuffled. `rbind` makes the
repeated row names unique by appending the first free number, so `X21.V1.791` is file 79 of the second
set, but `X1.V1.614` is file 6 of the fourth. Replaying that rule shows which recording each row is from.
"""

import re
import zipfile
from pathlib import Path

import numpy as np

from losac.data.files import Arrays

_STACKED = (5, 4, 3, 2, 1)
_BY_LETTER = (2, 3, 4, 1, 5)
_PER_CLASS = 100


def published_ids(files: int, chunks: int) -> dict[str, tuple[int, int, int]]:
    """Map each row name of the CSV to its (label, file within the set, chunk).

    Args:
        files: recordings in each of the five sets (100 in the published data).
        chunks: pieces of each recording, numbered from 1 (23 in the published data).

    >>> ids = published_ids(files=100, chunks=23)
    >>> ids["X21.V1.791"], ids["X1.V1.614"], len(ids)
    ((4, 79, 21), (2, 6, 1), 11500)
    """
    ids: dict[str, tuple[int, int, int]] = {}
    for chunk in range(1, chunks + 1):
        stems = [f"X{chunk}.V1" + (f".{file}" if file else "") for file in range(files)]
        ids |= {stem: (_STACKED[0], file, chunk) for file, stem in enumerate(stems)}
        suffix = dict.fromkeys(stems, 1)
        for label in _STACKED[1:]:
            for file, stem in enumerate(stems):
                while (name := f"{stem}{suffix[stem]}") in ids:
                    suffix[stem] += 1
                ids[name] = (label, file, chunk)
    return ids


def read_esr(path: Path) -> Arrays:
    """Read the CSV, or the zip that holds it, into x, y, recording and chunk, sorted by recording.

    Recordings are numbered 100 (label - 1) + file; the sets follow each other in the order of the
    letters of their files (F, N, O, S, Z).
    """
    lines = _text(path).splitlines()[1:]
    pairs = [line.split(",", 1) for line in lines if line.strip()]
    values = np.loadtxt([rest for _, rest in pairs], dtype=np.int64, delimiter=",", ndmin=2)
    names = [name.strip('"') for name, _ in pairs]
    x, y = values[:, :-1].astype(np.int16), values[:, -1].astype(np.uint8)

    chunks = max(int(match[1]) for name in names if (match := re.match(r"X(\d+)\.V1", name)))
    known = published_ids(len(names) // (len(_STACKED) * chunks), chunks)
    strangers = [name for name in names if name not in known]
    if strangers:
        raise ValueError(f"{path.name}: {strangers[0]!r} is not a row name of this data set")
    label, file, chunk = np.array([known[name] for name in names]).T
    order = np.lexsort((chunk, file, np.array(_BY_LETTER).argsort()[label - 1]))
    recording = _PER_CLASS * (label - 1) + file
    return {
        "x": x[order],
        "y": y[order],
        "recording": recording[order].astype(np.uint16),
        "chunk": chunk[order].astype(np.uint8),
    }


def _text(path: Path) -> str:
    if not zipfile.is_zipfile(path):
        return path.read_text()
    with zipfile.ZipFile(path) as archive:
        tables = [member for member in archive.namelist() if member.endswith(".csv")]
        if len(tables) != 1:
            raise ValueError(f"{path.name} should hold one CSV file, but holds {tables}")
        return archive.read(tables[0]).decode()
