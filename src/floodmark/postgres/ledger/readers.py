"""The readers of a capture instance, for the drift watch and for switches of instances."""

from __future__ import annotations

from collections.abc import Sequence

from floodmark.core.source.feed import InstanceIdentity
from floodmark.postgres.session import Reachable, open_transaction
from floodmark.postgres.sql import read_sql


def list_readers(at: Reachable, instance: InstanceIdentity) -> Sequence[str]:
    """Return the pipelines with a table whose watermark is a position in this instance."""
    named = {
        "instance_name": instance.name,
        "instance_object_id": instance.object_id,
        "instance_created_at": instance.created_at,
    }
    with open_transaction(at, instance.name) as session:
        return [pipeline for (pipeline,) in session.execute(read_sql("list_readers"), named)]
