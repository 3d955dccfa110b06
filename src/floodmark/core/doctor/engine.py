"""The checks of ``doctor`` on the engine and the warehouse: who can read passwords, and which texts are stored."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from floodmark.core.doctor.finding import Finding, Grade

ENCODING = "UTF8"
NEW_DATABASE = (
    "Create a database for the warehouse with CREATE DATABASE <name> ENCODING 'UTF8' TEMPLATE template0, and connect "
    "to it. PostgreSQL cannot change the encoding of a database, and any other cannot store every text of SQL Server."
)
_LOCAL = "local"
_ENCRYPTING = ("spark.authenticate", "spark.network.crypto.enabled")


def examine_server(url: str, *, is_loopback: bool, has_tls: bool) -> Iterator[Finding]:
    """Yield the finding on a Spark Connect server. The tasks carry the connections of source and warehouse to it."""
    if is_loopback or has_tls:
        how = "encrypted" if has_tls else "on this machine"
        yield Finding(Grade.GOOD, "spark", url, f"the connection to the server, which carries passwords, is {how}.")
    else:
        yield Finding(
            Grade.NOTE,
            "spark",
            url,
            "the server receives the passwords of source and warehouse with each load, in clear.",
            "Put a proxy with TLS in front of it, and set use_ssl in the Spark connection's extra.",
        )


def examine_engine(master: str, conf: Mapping[str, str]) -> Iterator[Finding]:
    """Yield the finding on a Spark master. conf: the properties that the Spark connection sets.

    Reading and staging happen in the executors, with the connections of source and warehouse, which travel inside the
    tasks. What the cluster's own configuration says is not known here.
    """
    if master.startswith(_LOCAL):
        yield Finding(Grade.GOOD, "spark", master, "Spark runs on the machine of the task.")
    elif all(conf.get(name) == "true" for name in _ENCRYPTING):
        yield Finding(Grade.GOOD, "spark", master, "the tasks, which carry passwords, are encrypted on the network.")
    else:
        yield Finding(
            Grade.NOTE,
            "spark",
            master,
            "its executors receive the passwords of source and warehouse with their tasks: in clear, unless the "
            "cluster encrypts its network.",
            "Set spark.authenticate and spark.network.crypto.enabled to true in the Spark connection's conf or in the "
            "cluster's configuration.",
        )


def examine_encoding(encoding: str) -> Finding:
    """Return the finding on the encoding of the warehouse's database."""
    text = f"the database of the warehouse has the encoding {encoding}."
    if encoding == ENCODING:
        return Finding(Grade.GOOD, "encoding", "warehouse", text)
    return Finding(Grade.PROBLEM, "encoding", "warehouse", text, NEW_DATABASE)
