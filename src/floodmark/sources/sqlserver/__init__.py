"""The parts that all SQL Server kinds of sources share: connections, errors by number, names in T-SQL."""
