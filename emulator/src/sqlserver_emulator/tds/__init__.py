"""TDS 7.4: packets, tokens and types, from bytes to messages and back. Pure: no sockets, no SQL."""
