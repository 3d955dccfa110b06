"""A table's shape as JSON, in which the ledger stores the last known one. Fields are only ever added."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime
from typing import Any

from floodmark.core.drift.shapes import TableShape
from floodmark.core.positions import parse_position
from floodmark.core.schema import SourceColumn, TableName
from floodmark.core.source.feed import InstanceIdentity


def shape_to_json(shape: TableShape) -> dict[str, Any]:
    """Return a document of dicts, lists, strings, numbers, booleans and None only."""
    return {
        "name": [shape.name.schema, shape.name.name],
        "instance": {
            "name": shape.identity.name,
            "object_id": shape.identity.object_id,
            "created_at": shape.identity.created_at.isoformat(),
        },
        "captured": [asdict(column) for column in shape.captured],
        "lost": list(shape.lost),
        "uncaptured": [asdict(column) for column in shape.uncaptured],
        "key": list(shape.key),
        "max_column_id": shape.max_column_id,
        "ddl_lsn": str(shape.ddl_lsn) if shape.ddl_lsn else None,
    }


def shape_from_json(document: Mapping[str, Any]) -> TableShape:
    """Return the shape of a document. Raises KeyError for a document that is not a shape."""
    instance = document["instance"]
    created_at = datetime.fromisoformat(instance["created_at"])
    return TableShape(
        name=TableName(*document["name"]),
        identity=InstanceIdentity(instance["name"], instance["object_id"], created_at),
        captured=tuple(SourceColumn(**column) for column in document["captured"]),
        lost=tuple(document["lost"]),
        uncaptured=tuple(SourceColumn(**column) for column in document["uncaptured"]),
        key=tuple(document["key"]),
        max_column_id=document["max_column_id"],
        ddl_lsn=parse_position(document["ddl_lsn"]) if document["ddl_lsn"] else None,
    )
