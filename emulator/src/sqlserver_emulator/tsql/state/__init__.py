"""The state of a session and of its running scopes: options, server variables, transactions, open cursors."""
