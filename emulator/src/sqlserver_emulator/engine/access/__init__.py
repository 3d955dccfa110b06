"""What statements and DDL share within a session: its connection and catalog, its rights, identity values."""
