"""What is named and is not a table: procedures, functions, triggers, views, sequences, synonyms."""
