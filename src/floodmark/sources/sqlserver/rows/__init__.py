"""The rows of a table of SQL Server, as every kind of source reads them."""
