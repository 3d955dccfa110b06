"""The story of one run: open a window, load it, check it, advance the watermark; and the ports it needs."""
