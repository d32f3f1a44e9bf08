"""Gradients of dense layers as products of their inputs and errors; the rest of the library need not know them."""
