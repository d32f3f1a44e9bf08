"""Settings of the field's benchmarks, named and versioned: data, partition, model, rounds, and what papers report."""

from losac.bench.setting import Benchmark, BenchmarkRow, names, read_setting

__all__ = ["Benchmark", "BenchmarkRow", "names", "read_setting"]
