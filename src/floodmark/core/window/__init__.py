"""Windows: the plan of one, its chunks, lanes and states."""
