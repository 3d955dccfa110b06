"""The status of a pipeline and its tables: progress, measures and the report."""
