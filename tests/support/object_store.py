"""An object store with the interface of S3, in the process of the test."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from moto.s3.models import s3_backends
from moto.server import ThreadedMotoServer
from pyarrow.fs import FileSelector, S3FileSystem

from floodmark.iceberg.folder import Bucket

_ACCOUNT, _PARTITION = "123456789012", "aws"


@contextmanager
def open_store(name: str) -> Iterator[Bucket]:
    """Start a store with an empty bucket, and end it."""
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    # It has a line for each request.
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server.start()
    try:
        host, port = server.get_host_and_port()
        at = Bucket(f"s3://{name}/lake", f"http://{host}:{port}", "", "reader", "bucket-secret")
        S3FileSystem(
            access_key=at.access_key,
            secret_key=at.secret_key,
            region="us-east-1",
            endpoint_override=at.endpoint,
            allow_bucket_creation=True,
        ).create_dir(name)
        yield at
    finally:
        server.stop()


def connection_of(bucket: Bucket, staging: Path) -> str:
    """Return Airflow's connection to a lake in a bucket, as JSON. staging: for rows that are not merged yet."""
    extra = {"path": bucket.location, "staging": str(staging), "endpoint_url": bucket.endpoint}
    return json.dumps({"conn_type": "aws", "login": bucket.access_key, "password": bucket.secret_key, "extra": extra})


def read_properties(bucket: Bucket) -> dict[str, str]:
    """Return the properties by which PyIceberg reads a bucket."""
    return {
        "s3.endpoint": bucket.endpoint,
        # Without one it asks AWS, and waits.
        "s3.region": "us-east-1",
        "s3.access-key-id": bucket.access_key,
        "s3.secret-access-key": bucket.secret_key,
    }


def elsewhere(bucket: Bucket, port: int) -> Bucket:
    """Return the same bucket of a store on another port."""
    return replace(bucket, endpoint=f"http://127.0.0.1:{port}")


def list_files(bucket: Bucket, folder: str) -> list[str]:
    """Return the names of the files of a folder. folder: its location, as in s3://bucket/folder."""
    found = bucket.open().get_file_info(FileSelector(folder.removeprefix("s3://"), allow_not_found=True))
    return sorted(each.base_name for each in found if each.is_file)


def write_file(bucket: Bucket, location: str, written: datetime, content: bytes = b"") -> None:
    """Put a file into the store, as if it was written at a time."""
    name, _, key = location.removeprefix("s3://").partition("/")
    with bucket.open().open_output_stream(f"{name}/{key}") as file:
        file.write(content)
    s3_backends[_ACCOUNT][_PARTITION].buckets[name].keys[key].last_modified = written
