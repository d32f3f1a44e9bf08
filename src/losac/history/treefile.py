"""Pytrees of arrays in one ``.npz`` file, together with their structure as JSON: no pickle, nothing executable."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np

from losac._files import write_whole
from losac.trees import Tree


def pack(tree: Tree, arrays: dict[str, np.ndarray]) -> Any:
    """Put the leaves into ``arrays`` and return the structure; of dicts, lists, tuples, arrays and plain values."""
    if isinstance(tree, dict):
        if not all(isinstance(k, str) for k in tree):
            raise TypeError(f"only dictionaries with string keys can be saved, not {list(tree)[:3]}")
        return {"dict": {k: pack(v, arrays) for k, v in tree.items()}}
    if isinstance(tree, list | tuple):
        kind = "list" if isinstance(tree, list) else "tuple"
        return {kind: [pack(v, arrays) for v in tree]}
    if tree is None or isinstance(tree, str | bool | int | float):
        return {"value": tree}
    name = f"a{len(arrays)}"
    arrays[name] = np.asarray(tree)
    if arrays[name].dtype == object:
        raise TypeError(f"a {type(tree).__name__} cannot be saved; save the params yourself, or give plain containers")
    return {"array": name}


def unpack(structure: Any, arrays: Any) -> Tree:
    """Return the tree that was packed."""
    ((kind, content),) = structure.items()
    if kind == "dict":
        return {k: unpack(v, arrays) for k, v in content.items()}
    if kind == "list":
        return [unpack(v, arrays) for v in content]
    if kind == "tuple":
        return tuple(unpack(v, arrays) for v in content)
    return arrays[content] if kind == "array" else content


def save(path: str | Path, tree: Tree) -> Path:
    """Write a tree to a file, whole or not at all."""
    path = Path(path)
    arrays: dict[str, np.ndarray] = {}
    structure = json.dumps(pack(tree, arrays))
    content = io.BytesIO()
    np.savez(content, structure=np.array(structure), allow_pickle=False, **arrays)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, content.getvalue())
    return path


def load(path: str | Path) -> Tree:
    """Read a tree back."""
    if Path(path).exists() and not Path(path).is_file():  # a pipe would be waited for
        raise ValueError(f"{path} is not a file; give one that losac saved")
    try:
        with open(path, "rb") as raw, np.load(raw, allow_pickle=False) as file:
            return unpack(json.loads(str(file["structure"])), {k: file[k] for k in file.files})
    except FileNotFoundError:
        raise
    except Exception as error:
        why = "it is no NumPy archive" if "pickle" in str(error) else error
        raise ValueError(f"{path} is not a file that losac saved, or it is damaged ({why})") from error
