"""SQL Server Agent, as far as CDC needs it: capture jobs as processes, cleanup, and their supervisor."""
