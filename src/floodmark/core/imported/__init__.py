"""States of other tools: the positions up to which they have loaded tables."""
