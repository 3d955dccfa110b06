"""The status of a pipeline, from the ledger and, on request, from the source."""
