"""What a source is examined for."""
