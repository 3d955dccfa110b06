"""How a pipeline is doing: what the ledger says and, if it is asked, the source."""
