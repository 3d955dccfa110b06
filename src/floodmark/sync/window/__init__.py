"""The common parts of every opening of a window: its result, the retry, and the second check of the source."""
