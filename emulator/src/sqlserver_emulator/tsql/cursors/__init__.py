"""Cursors: those that T-SQL declares, and those that drivers open on the server (``sp_cursoropen``)."""
