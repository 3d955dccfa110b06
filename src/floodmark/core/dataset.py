"""``Dataset``: what rows are read from or written to, named as OpenLineage's naming rules want it.

A namespace has hosts and ports, never a login.
"""

from __future__ import annotations

from dataclasses import dataclass

from floodmark.core.schema import TableName

_LOCAL_FOLDER = ("/", "@")
"""What the host of a Unix socket begins with."""


@dataclass(frozen=True, slots=True)
class Dataset:
    """A table, a topic or a file."""

    namespace: str
    name: str
    """The name within the namespace."""
    is_table: bool = False
    """Whether it is one table. A topic and a file have the rows of several."""


def table_dataset(scheme: str, host: str, port: int, database: str, table: TableName) -> Dataset:
    """Return a table of a server: ``<scheme>://<host>:<port>``, ``<database>.<schema>.<table>``."""
    named = "localhost" if host.startswith(_LOCAL_FOLDER) else host
    in_uri = f"[{named}]" if ":" in named else named
    return Dataset(f"{scheme}://{in_uri}:{port}", f"{database}.{table.schema}.{table.name}", is_table=True)


def topic_dataset(servers: str, topic: str) -> Dataset:
    """Return a topic of a Kafka cluster, named by the first of its servers."""
    return Dataset(f"kafka://{servers.partition(',')[0].strip()}", topic)


def file_dataset(path: str) -> Dataset:
    """Return a file, a folder, or a pattern of files."""
    return Dataset("file", path)
