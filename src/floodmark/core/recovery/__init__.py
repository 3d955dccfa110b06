"""The recovery of changes that were lost or are needed again: gaps and replays."""
