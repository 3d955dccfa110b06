"""Change data capture: all T-SQL about it, and the adapters of the source ports."""
