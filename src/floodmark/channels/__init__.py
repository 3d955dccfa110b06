"""Who is told of alerts, beside the log."""
