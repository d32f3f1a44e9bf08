"""The arguments of `read` and `inspect`, checked before anything is read."""

import codecs
import os
from collections.abc import Hashable
from typing import Any

import numpy as np

from losac._checks import check_count, check_flag, check_list, check_share, check_text, described, is_number, shown


def column_name(role: str, name: Any) -> str | None:
    """Return the name of a column as a string; frames may have numbers as names.

    >>> column_name("target", 3), column_name("target", None)
    ('3', None)
    """
    if name is None or isinstance(name, str):
        return name
    if not isinstance(name, Hashable) or isinstance(name, bool | tuple | float):
        raise TypeError(f"{role} must be the name of one column, not {described(name)}")
    return str(name)


def column_names(names: Any) -> list[str] | None:
    """Return the names of the input columns; None if they are not given."""
    if names is None or isinstance(names, str):
        return names if names is None else [names]
    listed = check_list("features", names, "a column or a list of columns")
    found = [str(column_name("features", name)) for name in listed]
    if not found:
        raise ValueError("features=[] names no column; leave features out to take all others")
    twice = next((name for name in found if found.count(name) > 1), None)
    if twice is not None:
        raise ValueError(f"features names the column {twice!r} twice; name it once")
    return found


def check_options(
    clients: Any,
    test: Any,
    labels: Any,
    size: Any,
    flatten: Any,
    dtype: Any,
    encoding: Any,
    memory_map: Any,
    name: Any,
) -> None:
    """Refuse arguments that `read` cannot use."""
    if clients is not None and (not isinstance(clients, int | np.integer) or isinstance(clients, bool) or clients < 1):
        raise ValueError(f"clients={shown(clients)}; give a number of clients of at least 1")
    if is_number(test) or isinstance(test, bool):
        check_share("test", test)
    if labels is not None:
        check_flag("labels", labels)
    check_flag("flatten", flatten)
    check_size(size)
    check_encoding(encoding)
    if not isinstance(memory_map, bool | str | os.PathLike):
        raise TypeError(f"memory_map must be True or a folder, not {described(memory_map)}")
    if name is not None:
        check_text("name", name)
    try:
        kind = np.dtype(dtype).kind
    except TypeError:
        kind = ""
    if kind not in "iuf" or not kind:
        raise ValueError(f"dtype={shown(dtype)} must be a type of numbers, such as 'float32'")


def check_size(size: Any) -> None:
    """Refuse a size of images that is not (height, width)."""
    if size is None:
        return
    if not isinstance(size, tuple | list) or len(size) != 2:
        raise ValueError(f"size={shown(size)} must be (height, width), such as (28, 28)")
    for side, pixels in zip(("height", "width"), size):
        check_count(f"size: {side}", pixels)


def check_encoding(encoding: Any) -> None:
    """Refuse an unknown encoding."""
    try:
        codecs.lookup(check_text("encoding", encoding))
    except LookupError:
        raise ValueError(f"encoding={encoding!r} is not known; give one such as 'utf-8' or 'latin-1'") from None
