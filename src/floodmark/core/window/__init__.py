"""Windows: their plan, chunks, lanes and states."""
