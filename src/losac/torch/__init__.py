"""Federations simulated with PyTorch: the model is a ``torch.nn.Module``, the algorithms are the same files."""

from losac.federation.torch import load_into
from losac.torch.options import TorchOptions
from losac.torch.running import simulate

__all__ = ["TorchOptions", "load_into", "simulate"]
