"""Low-rank adapters in PyTorch modules, by PEFT: for Hugging Face transformers and any other module."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from losac._checks import POSITIVE, check_choice, check_count, check_number
from losac._extras import need
from losac.adapters.lora import Train

MARKS = {"a": ".lora_A.", "b": ".lora_B."}
"""What PEFT's names of the factors hold."""


def peft(
    module: Any, rank: int, targets: str | Sequence[str] = "all-linear", *, alpha: float | None = None,
    train: Train = "both", also: Sequence[str] | None = None,
) -> Any:  # fmt: skip
    """Return a PyTorch module with low-rank adapters, all else in it frozen; its outputs are tensors.

    Of a Hugging Face model the outputs are its logits. Federations send what requires a gradient: the adapters
    (:func:`losac.torch.simulate`, :func:`losac.federation.torch.torch_worker`). PEFT puts the adapters into the given
    module, which is changed.

    Args:
      module: a ``torch.nn.Module``, such as ``transformers.AutoModelForCausalLM.from_pretrained(folder)``.
      rank: r.
      targets: the names of the layers that get an adapter, or what they end with, such as ``["q_proj", "v_proj"]``; or
        PEFT's ``"all-linear"``.
      alpha: α of the factor α/r; r by default.
      train: ``"both"``, or ``"b"`` with A frozen (FFA-LoRA): draw A from the same seed on every machine.
      also: the names of layers that are trained as they are, such as a new head.
    """
    library, pytorch = (need(name, "losac.adapters.peft", "lora") for name in ("peft", "torch"))
    check_count("rank", rank)
    check_choice("train", train, ("both", "b"))
    if not isinstance(module, pytorch.nn.Module):
        raise TypeError(
            f"module must be a torch.nn.Module, not {type(module).__name__}; JAX models: losac.adapters.lora"
        )
    if hasattr(module, "config") and hasattr(module.config, "use_cache"):
        module.config.use_cache = False
    by_columns = any(type(layer).__name__ == "Conv1D" for layer in module.modules())
    settings = library.LoraConfig(
        r=rank,
        lora_alpha=rank if alpha is None else check_number("alpha", alpha, POSITIVE),
        target_modules=targets if isinstance(targets, str) else list(targets),
        modules_to_save=None if also is None else list(also),
        fan_in_fan_out=by_columns,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # of the libraries to each other
        adapted = library.get_peft_model(module, settings)
    if train == "b":
        for name, parameter in adapted.named_parameters():
            if MARKS["a"] in name:
                parameter.requires_grad_(False)
    return _outputs(pytorch, adapted)


def factors(params: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return A and B by the name of their layer, from parameters by PEFT's names: what the rules of averaging take.

    >>> sorted(factors({"h.0.lora_A.default.weight": 1, "h.0.lora_B.default.weight": 2, "head.weight": 3})["h.0"])
    ['a', 'b']
    """
    found: dict[str, dict[str, Any]] = {}
    for part, mark in MARKS.items():
        for name, value in params.items():
            if mark in name:
                found.setdefault(name.split(mark)[0], {})[part] = value
    return found


def _outputs(pytorch: Any, adapted: Any) -> Any:
    """Return a module that calls another and returns the tensor in what that returns."""

    class Outputs(pytorch.nn.Module):  # type: ignore[misc]
        """A model whose outputs are one tensor."""

        def __init__(self) -> None:
            super().__init__()
            self.adapted = adapted

        def forward(self, x: Any) -> Any:
            """Return the logits, or the outputs of a module that has none."""
            found = self.adapted(x)
            return getattr(found, "logits", found)

    return Outputs()
