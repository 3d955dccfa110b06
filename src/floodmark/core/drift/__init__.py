"""Schema drift: shapes of tables, their differences, proposals and switches of capture instances."""
