"""Fuzzing of everything that reads a client's bytes; ``make fuzz`` runs it for a bounded time."""
