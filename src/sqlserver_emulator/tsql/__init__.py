"""The T-SQL batch interpreter: lexer, statement splitter, control flow, variables, procedure calls, transactions.

What a single SQL statement means is the engine's business (``engine.contract``)."""
