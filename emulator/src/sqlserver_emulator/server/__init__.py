"""The wire: the listener, TLS and login, and the requests of each client. What they mean is behind ``session``."""
