"""The alerts and their texts."""
