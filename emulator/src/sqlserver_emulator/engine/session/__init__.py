"""One client's access to the databases, put together of what is below: queries, changes, bulk load, triggers."""
