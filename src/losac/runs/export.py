"""A trained model in a format that other programs read: ``pip install 'losac[export]'``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import numpy as np

from losac._extras import need
from losac._files import make_folder, write_whole
from losac.history import History
from losac.runs.layout import HISTORY
from losac.trees import Tree


def finished(folder: str | Path) -> History:
    """Return the history, with the model, of a finished run: of its folder, or of a federation's results."""
    path = Path(folder) / HISTORY
    if not path.is_file():
        raise ValueError(f"{folder} holds no finished run: {HISTORY} is written at its end")
    history = History.load(path)
    if history.params is None:
        raise ValueError(f"{path} holds no model: its parameters were not in plain containers")
    return history


def tensors(history: History) -> dict[str, np.ndarray]:
    """Return a model's arrays by name; of a PyTorch module these are the names of its ``state_dict``.

    Nested names are joined by dots. The model's state (such as batch-norm statistics) has its own names, behind
    ``model_state.`` where a parameter has the same.
    """
    params, state = _named(history.params, "params"), _named(history.model_state, "model_state")
    return params | {f"model_state.{name}" if name in params else name: array for name, array in state.items()}


def export_safetensors(history: History, path: str | Path) -> Path:
    """Write a model's arrays to a ``.safetensors`` file, whole or not at all; return the file."""
    save = need("safetensors.numpy", "export to safetensors", "export").save
    rounds = str(int(history.rounds[-1])) if len(history.rounds) else "0"
    about = {"algorithm": history.algorithm, "task": history.task, "rounds": rounds, "seed": str(history.seed)}
    path = Path(path)
    make_folder(path.parent)
    write_whole(path, save({name: np.ascontiguousarray(array) for name, array in tensors(history).items()}, about))
    return path


def _named(tree: Tree, alone: str) -> dict[str, np.ndarray]:
    """Return a tree's leaves by their joined names; a tree that is one array has the name ``alone``."""
    found = {}
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        found[".".join(map(_word, path)) or alone] = np.asarray(leaf)
    return found


def _word(key: Any) -> str:
    return str(next(getattr(key, name) for name in ("key", "idx", "name") if hasattr(key, name)))
