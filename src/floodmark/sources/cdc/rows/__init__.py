"""The rows of a table: the T-SQL that reads them, and their way into Arrow batches."""
