"""Stack Overflow by user: the next word of questions and answers, 342,477 clients.

In the form of TensorFlow Federated, whose checksum this is. The archive is large and is unpacked once; only the users
that are asked for are read.
"""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from losac._checks import check_count
from losac.data.sets.kept import KeptSet, PublicFile
from losac.data.sets.shakespeare import windows
from losac.data.sets.tff import BASE, clients, gathered, texts, unpacked
from losac.data.tables import Table

_ARCHIVE = "stackoverflow.tar.bz2"
UNKNOWN, END = 1, 2
_FIRST = 3


def table(
    files: Mapping[str, Path],
    rng: np.random.Generator,
    *,
    users: int = 1000,
    sentences: int = 128,
    words: int = 10_000,
    length: int = 20,
    stride: int = 5,
    test_users: int = 100,
) -> Table:
    """Whole numbers [length], the words before; the label is the word that follows.

    0 pads what begins before a sentence, 1 is a word outside of the vocabulary, 2 ends a sentence. The vocabulary
    is that of the users that are read. The test rows are of other users.

    Args:
        files: the published files.
        rng: not used.
        users: how many to read, in the order of their names.
        sentences: how many of each, at most.
        words: the size of the vocabulary, without the three special ones.
        length: how many words a row has.
        stride: words from row to row of a sentence; 1 uses every word as a label.
        test_users: users of the test part to read.
    """
    counts = {"users": users, "sentences": sentences, "words": words, "length": length, "stride": stride}
    for name, value in {**counts, "test_users": test_users}.items():
        check_count(name, value)
    path = unpacked(files[_ARCHIVE], "stackoverflow_train.h5")
    seen = Counter(
        word
        for _, fields in clients(path, users)
        for text in texts(fields["tokens"])[:sentences]
        for word in text.split()
    )
    ranked = sorted(seen, key=lambda word: (-seen[word], word))[:words]
    numbers = {word: _FIRST + at for at, word in enumerate(ranked)}

    def rows(fields: Any) -> tuple[NDArray[Any], NDArray[Any]]:
        cut = [_windows(text, numbers, length, stride) for text in texts(fields["tokens"])[:sentences]]
        xs, ys = zip(*cut)
        return np.concatenate(xs), np.concatenate(ys)

    x, y, who = gathered(path, None, users, rows)
    held = gathered(unpacked(files[_ARCHIVE], "stackoverflow_test.h5"), None, test_users, rows)
    return Table(x, y, _FIRST + len(ranked), test=held[:2], groups=who)


def _windows(text: str, numbers: Mapping[str, int], length: int, stride: int) -> tuple[NDArray[Any], NDArray[np.int32]]:
    tokens = [numbers.get(word, UNKNOWN) for word in text.split()]
    return windows(np.array([*tokens, END], np.int32), length, stride)


STACKOVERFLOW = KeptSet(
    "stackoverflow",
    "the next word in questions and answers of Stack Overflow's users; needs losac[hdf5] and much disk",
    (
        PublicFile(
            _ARCHIVE,
            (f"{BASE}{_ARCHIVE}",),
            "sha256:99eca2f8b8327a09e5fc123979df2d237acbc5e52322f6d86bf523ee47b961a2",
        ),
    ),
    table,
    "CC BY-SA 3.0, with attribution to Stack Overflow and its users",
    natural=True,
)
