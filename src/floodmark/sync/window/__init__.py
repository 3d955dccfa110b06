"""What every opening of a window shares: what comes of it, a second try, a second check of the source."""
