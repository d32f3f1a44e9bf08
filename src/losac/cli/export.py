"""``losac export``: the model of a finished run in a format that other programs read."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from losac.cli.output import Answer
from losac.experiment.fields import Option

EPILOG = """Examples:

losac export runs/first model.safetensors

losac export federation/results/1 model.onnx --module myapp.problem:module --shape 64"""
_MODEL = "Model"


def export(
    run: Annotated[Path, typer.Argument(help="Folder of a finished run, or of a federation's results.")],
    file: Annotated[Path, typer.Argument(help="File to write; its ending says how: .safetensors or .onnx.")],
    module: Annotated[
        str | None,
        Option(
            _MODEL,
            "For ONNX: your function that returns the PyTorch module, as PACKAGE.MODULE:NAME or FILE.py:NAME.",
            default="none",
        ),
    ] = None,
    shape: Annotated[
        str | None, Option(_MODEL, "For ONNX: shape of one row of inputs, such as 3,32,32.", default="none")
    ] = None,
    overwrite: Annotated[bool, Option(_MODEL, "Replace a file that is there.", "--overwrite")] = False,
) -> Answer:
    """Write the model of a finished run as safetensors, or as ONNX if it is a PyTorch module."""
    if file.suffix not in (".safetensors", ".onnx"):
        raise ValueError(f"{file} ends neither with .safetensors nor with .onnx; its ending says what to write")
    if file.exists() and not overwrite:
        raise ValueError(f"{file} exists; give another file, or --overwrite to replace it")
    from losac.runs.export import export_safetensors, finished, tensors

    history = finished(run)
    if file.suffix == ".safetensors":
        export_safetensors(history, file)
    else:
        if module is None or shape is None:
            raise ValueError("ONNX needs the module and the shape of a row: --module FILE.py:NAME --shape 64")
        from losac.torch.onnx import export_onnx

        export_onnx(_made(module), history, file, _shape(shape))
    arrays = {name: list(array.shape) for name, array in tensors(history).items()}
    return Answer({"file": str(file), "arrays": arrays}, f"{len(arrays)} arrays", paths=[file])


def _shape(text: str) -> tuple[int, ...]:
    try:
        found = tuple(int(part) for part in text.split(","))
    except ValueError:
        found = (0,)
    if min(found) < 1:
        raise ValueError(f"--shape {text!r} is no shape; give positive whole numbers, such as 3,32,32")
    return found


def _made(name: str) -> Any:
    """Return what a user's function returns."""
    from losac._own import call_own, is_own, load_own

    if not is_own(name):
        raise ValueError(f"--module {name!r} is not of the form PACKAGE.MODULE:NAME or FILE.py:NAME")
    return call_own(name, load_own(name), {})
