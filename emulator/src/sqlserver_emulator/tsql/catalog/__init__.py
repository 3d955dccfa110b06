"""System procedures that describe the catalog (sp_tables, sp_columns…), and the names of those that are refused."""
