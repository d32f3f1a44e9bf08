"""Gradients of dense layers as products of their inputs and errors; the rest of the library does not depend on this."""
