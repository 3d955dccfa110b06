"""Translated values: their types, conversions and operators, as T-SQL's rules have them."""
