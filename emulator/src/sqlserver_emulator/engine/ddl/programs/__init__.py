"""Procedures, functions, triggers, views, sequences and synonyms."""
