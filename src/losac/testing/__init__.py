"""The laws that every algorithm of the library must pass, to check your own algorithm."""

from losac.testing.check import check_algorithm
from losac.testing.regimes import BIASED, EXACT, REFUSED, Regime
from losac.testing.report import Finding, Report

__all__ = ["BIASED", "EXACT", "REFUSED", "Finding", "Regime", "Report", "check_algorithm"]
