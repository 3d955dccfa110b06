"""Queries: SELECT with its sources, groups, pivots and recursion."""
