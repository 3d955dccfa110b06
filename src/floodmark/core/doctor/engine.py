"""The check of ``doctor`` on the engine: who can read the passwords that its executors receive."""

from __future__ import annotations

from collections.abc import Iterator

from floodmark.core.doctor.finding import Finding, Grade

_LOCAL = "local"


def examine_engine(master: str | None) -> Iterator[Finding]:
    """Yield the finding on a Spark master; None where no connection names one, so that Spark runs on this machine.

    Reading and staging happen in the executors, with the connections of source and warehouse, which travel inside the
    tasks. Whether the cluster encrypts them is in its own configuration.
    """
    if master is None or master.startswith(_LOCAL):
        yield Finding(Grade.GOOD, "spark", master or _LOCAL, "Spark runs on the machine of the task.")
        return
    yield Finding(
        Grade.NOTE,
        "spark",
        master,
        "its executors receive the passwords of source and warehouse with their tasks: in clear, unless the cluster "
        "encrypts its network.",
        "Set spark.authenticate and spark.network.crypto.enabled to true in the cluster's configuration.",
    )
