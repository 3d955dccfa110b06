"""The concepts and rules, with no I/O and no clock: standard library only."""
