"""DDL as text: what a statement declares, read from its tokens."""
