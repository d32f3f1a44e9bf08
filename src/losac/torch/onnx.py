"""A trained PyTorch module as an ONNX file: ``pip install 'losac[export,torch]'``."""

from __future__ import annotations

import contextlib
import io
import logging
import tempfile
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from losac._extras import need
from losac._files import make_folder, write_whole
from losac.federation.torch import load_into
from losac.history import History


def export_onnx(module: Any, history: History, path: str | Path, shape: Sequence[int]) -> Path:
    """Put a run's model into its module and write this as ONNX, in evaluation mode, for any number of rows.

    Args:
      module: the module that was trained; it holds the run's model afterwards.
      history: of the run.
      path: the ``.onnx`` file to write, whole or not at all.
      shape: of one row of inputs, such as ``(3, 32, 32)``.
    """
    torch = need("torch", "export to ONNX", "torch")
    for name in ("onnx", "onnxscript"):
        need(name, "export to ONNX", "export")
    load_into(module, history.params, history.model_state)
    one = next(module.parameters())
    rows = torch.zeros((2, *shape), dtype=one.dtype, device=one.device)
    batch = ({0: torch.export.Dim("rows")},)
    logger = logging.getLogger("torch.onnx")
    before, training = logger.level, module.training
    logger.setLevel(logging.ERROR)  # it names every optional package that is not there
    try:
        module.eval()
        with (
            tempfile.TemporaryDirectory() as folder,
            warnings.catch_warnings(),
            contextlib.redirect_stdout(io.StringIO()),
        ):
            warnings.simplefilter("ignore")
            made = Path(folder, "model.onnx")
            torch.onnx.export(module, (rows,), made, dynamo=True, dynamic_shapes=batch, external_data=False)
            content = made.read_bytes()
    finally:
        logger.setLevel(before)
        module.train(training)
    path = Path(path)
    make_folder(path.parent)
    write_whole(path, content)
    return path
