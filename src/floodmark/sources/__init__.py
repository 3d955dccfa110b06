"""Where changes come from: one package per kind of source, and what the SQL Server kinds share."""
