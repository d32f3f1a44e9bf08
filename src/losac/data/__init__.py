"""Federated data: load it by name, build it from your own arrays, split it among clients.

>>> from losac import data
>>> data.load("digits", clients=20, partition="sorted")
FederatedData('digits': 20 clients, 1,438 rows (71 to 72 each), x (64,) float32, y () int32, 10 classes,
test 359 rows)
"""

from losac.data import partition
from losac.data.federated import FederatedData
from losac.data.files import DataError
from losac.data.inspection import Column, Inspection, Problem, inspect
from losac.data.load import datasets, load
from losac.data.mapped import map_npy, write_npy
from losac.data.read import read
from losac.data.splits import Split, split
from losac.data.standardize import Scale, Sums, client_sums, combine, standardize
from losac.data.store import fetch
from losac.data.synthetic import crowd, least_squares_optimum, logistic, lowrank, quadratic
from losac.data.synthetic_clients import fedprox_synthetic

__all__ = [
    "Column",
    "DataError",
    "FederatedData",
    "Inspection",
    "Problem",
    "Scale",
    "Split",
    "Sums",
    "client_sums",
    "combine",
    "crowd",
    "datasets",
    "fedprox_synthetic",
    "fetch",
    "inspect",
    "least_squares_optimum",
    "load",
    "logistic",
    "lowrank",
    "map_npy",
    "partition",
    "quadratic",
    "read",
    "split",
    "standardize",
    "write_npy",
]
