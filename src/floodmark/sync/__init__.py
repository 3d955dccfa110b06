"""The steps of a run: open a window, load it, check it, advance the watermark; and the ports that they need."""
