"""Alerts: their texts and what is told apart."""
