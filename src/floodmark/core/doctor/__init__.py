"""The checks of ``floodmark doctor`` on a source."""
