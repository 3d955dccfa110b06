"""``floodmark archive-classes``: the preparation of an installation for short starts of Spark."""

from __future__ import annotations

from typing import Annotated

import typer

from floodmark.cli.process import explained
from floodmark.spark.launch.recording import record_classes


def archive_classes(
    only_missing: Annotated[bool, typer.Option("--only-missing", help="Do nothing where they are recorded.")] = False,
) -> None:
    """Record the classes that Spark loads in a file of this installation, once: Spark then starts in half the time.
    Needed again after a new version of Java or of pyspark. It takes a minute and 150 MB."""
    with explained():
        path = record_classes(only_missing)
    typer.echo(f"{path}: {path.stat().st_size / 1e6:.0f} MB")
