"""Logins, users and roles, and what they may do."""
