"""Schema drift: the watch, its events, and switches of capture instances."""
