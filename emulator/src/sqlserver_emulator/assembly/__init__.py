"""The emulator put together: its PostgreSQL, the shared catalog, capture, and the sessions of clients."""
