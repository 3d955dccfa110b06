"""What a session and its running scopes keep: options, variables of the server, transactions, open cursors."""
