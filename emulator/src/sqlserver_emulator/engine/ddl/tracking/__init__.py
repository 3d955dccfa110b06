"""Change Tracking as DDL: the switches, and what a tracked table consists of in PostgreSQL."""
