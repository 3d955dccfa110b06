"""The warehouse: target tables, staging, quarantine and the merge."""
