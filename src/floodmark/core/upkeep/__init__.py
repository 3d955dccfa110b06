"""The upkeep of a source: its capture job, its retention, its change tables."""
