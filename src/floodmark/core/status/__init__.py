"""How late tables are, and how far a source has come."""
