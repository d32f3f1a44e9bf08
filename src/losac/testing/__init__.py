"""The laws that every algorithm here is tested against, for an algorithm of your own."""

from losac.testing.check import check_algorithm
from losac.testing.regimes import BIASED, EXACT, REFUSED, Regime
from losac.testing.report import Finding, Report

__all__ = ["BIASED", "EXACT", "REFUSED", "Finding", "Regime", "Report", "check_algorithm"]
