"""Databases and tables become tracked, and cease to be; what DDL may do to those that are."""
