"""Shakespeare by role: the next character of what a role says, 715 clients.

H. B. McMahan et al., *Communication-efficient learning of deep networks from decentralized data*, 2017, in the form of
TensorFlow Federated, whose checksum and alphabet these are.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from losac._checks import check_count
from losac.data.sets.kept import KeptSet, PublicFile
from losac.data.sets.tff import BASE, gathered, texts, unpacked
from losac.data.tables import Table

_ARCHIVE = "shakespeare.tar.bz2"
ALPHABET = "dhlptx@DHLPTX $(,048cgkoswCGKOSW[_#'/37;?bfjnrvzBFJNRVZ\"&*.26:\naeimquyAEIMQUY]!%)-159\r"
PADDING, UNKNOWN = 0, 1
_FIRST = 2
CLASSES = _FIRST + len(ALPHABET)


def table(
    files: Mapping[str, Path],
    rng: np.random.Generator,
    *,
    roles: int | None = None,
    length: int = 80,
    stride: int = 10,
) -> Table:
    """Whole numbers [length], the characters before; the label is the character that follows.

    0 pads what begins before a role's text, 1 is a character outside of the alphabet.

    Args:
        files: the published files.
        rng: not used.
        roles: how many to read, in the order of their names; all by default.
        length: how many characters a row has.
        stride: characters from row to row; 1 uses every character as a label.
    """
    for name, value in {"length": length, "stride": stride, "roles": 1 if roles is None else roles}.items():
        check_count(name, value)

    def rows(fields: Any) -> tuple[NDArray[Any], NDArray[Any]]:
        return windows(encoded("\n".join(texts(fields["snippets"]))), length, stride)

    archive = files[_ARCHIVE]
    x, y, who = gathered(unpacked(archive, "shakespeare_train.h5"), None, roles, rows)
    held = gathered(unpacked(archive, "shakespeare_test.h5"), set(who.tolist()), None, rows)
    names = ("padding", "unknown", *(repr(letter) for letter in ALPHABET))
    return Table(x, y, CLASSES, test=held[:2], groups=who, label_names=names)


def encoded(text: str) -> NDArray[np.uint8]:
    """Return a text as whole numbers.

    >>> encoded("dh~").tolist()
    [2, 3, 1]
    """
    numbers = {letter: _FIRST + at for at, letter in enumerate(ALPHABET)}
    return np.array([numbers.get(letter, UNKNOWN) for letter in text], np.uint8)


def windows(tokens: NDArray[Any], length: int, stride: int) -> tuple[NDArray[Any], NDArray[np.int32]]:
    """Return rows of `length` tokens, each with the token that follows; padded before the beginning.

    >>> x, y = windows(np.array([5, 6, 7, 8]), 2, 2)
    >>> x.tolist(), y.tolist()
    ([[0, 5], [6, 7]], [6, 8])
    """
    padded = np.concatenate([np.full(length, PADDING, tokens.dtype), tokens])
    labels = np.arange(1, len(tokens), stride)
    x = padded[labels[:, None] + np.arange(length)] if len(labels) else np.empty((0, length), tokens.dtype)
    return x, tokens[labels].astype(np.int32)


SHAKESPEARE = KeptSet(
    "shakespeare",
    "the next character of what 715 roles of Shakespeare say; 86 characters; needs losac[hdf5]",
    (
        PublicFile(
            _ARCHIVE,
            (f"{BASE}{_ARCHIVE}",),
            "sha256:0285be9906cb5f268092eee4edeeacfc2af4574f2941f7cc2f08a321d7f5c707",
        ),
    ),
    table,
    "public domain; cite McMahan et al., 2017",
    natural=True,
)
