"""Statements that change rows or assign variables: INSERT, UPDATE, DELETE, MERGE and SELECT @a = …."""
