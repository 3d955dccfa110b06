"""The upkeep of a source: its capture job and its retention."""
