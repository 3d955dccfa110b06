"""The source as the runs find it: its snapshot, the verdict on each table, its history of positions."""
