"""Low-rank adapters in federations: LoRA on frozen weights, and the known rules of averaging it."""

from losac.adapters.federate import RULES, Adapted, federate
from losac.adapters.huggingface import factors, peft
from losac.adapters.lora import Lora, lora
from losac.adapters.rules import average, products, residual, stacked, truncated

__all__ = [
    "RULES",
    "Adapted",
    "Lora",
    "average",
    "factors",
    "federate",
    "lora",
    "peft",
    "products",
    "residual",
    "stacked",
    "truncated",
]
