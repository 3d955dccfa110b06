"""Change data capture: all of its T-SQL, and the adapters of the source ports."""
