"""What people look at: the terminal tables of the CLI and, later, the status page."""
