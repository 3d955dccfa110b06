"""Tables: their columns, constraints, indexes and rows in the catalog, made, changed and removed."""
