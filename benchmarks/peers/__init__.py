"""Floodmark next to other readers of the same change tables, in one run: ``make bench-peers``."""
