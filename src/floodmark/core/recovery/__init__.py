"""What is done about changes that are gone or wanted once more: gaps and replays."""
