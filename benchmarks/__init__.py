"""Measurements, side by side in one run; ``make bench`` writes ``report.md``. Never a timed test."""
