"""Loads of single tables outside the windows, and replays of intervals."""
