"""Settings of the field's benchmarks, named and versioned: data, partition, model, rounds, and what papers report."""

from losac.bench.setting import Row, Setting, names, read_setting

__all__ = ["Row", "Setting", "names", "read_setting"]
