"""The text of a statement: tokens, literals taken out of it, and the dialect of sqlglot that parses it."""
