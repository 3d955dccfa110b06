"""The command ``floodmark``: typer commands, tables for people and JSON for programs."""
