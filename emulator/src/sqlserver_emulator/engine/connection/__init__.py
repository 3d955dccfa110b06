"""PostgreSQL underneath: connections, transactions, the reading of large results, and errors as T-SQL words them."""
