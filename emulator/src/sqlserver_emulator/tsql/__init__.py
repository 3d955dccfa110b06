"""The T-SQL batch interpreter: control flow, variables, procedure calls, transactions.

``syntax`` splits a batch into statements; what a single SQL statement means is the engine's business (``contract``)."""
