"""Data-quality checks. The only place that imports great_expectations."""
