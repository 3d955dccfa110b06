"""The parts of a session that statements and DDL share: connection, catalog, rights, identity values."""
