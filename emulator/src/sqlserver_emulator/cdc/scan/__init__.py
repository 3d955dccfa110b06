"""One scan of the log: transactions taken, rows written into change tables, and what the scan says of itself."""
