"""Watermarks, windows and verdicts in the warehouse's schema ``floodmark``: the one truth about progress."""
