"""The concepts and rules: standard library only, without I/O and without a clock."""
