"""Scalar expressions and conditions: names in scope, comparisons, FOR clauses, and T-SQL's functions."""
