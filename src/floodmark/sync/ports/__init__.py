"""The ports of the steps, as Protocols: one file per port."""
