"""The channels for alerts, in addition to the log."""
