"""The source as it was found: its snapshot, the verdict on each table, its history of positions."""
