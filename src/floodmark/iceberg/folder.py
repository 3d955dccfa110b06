"""Where the files of a lake are: in a folder, or in a bucket of an object store that has the interface of S3."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Self

from floodmark.core.errors import ConfigError, WarehouseUnavailableError

if TYPE_CHECKING:
    from pyarrow.fs import S3FileSystem

    from floodmark.postgres.session import WarehouseConnection

S3 = "s3://"
"""The beginning of each location in a bucket."""
_DIGITS = 16
_CONNECT_SECONDS, _ANSWER_SECONDS = 10, 60
_REGION_OF_ENDPOINTS = "us-east-1"
"""A region for stores that have none: AWS's clients ask for one."""
_STORES = 4
"""Clients that a process keeps. A page lives long, and temporary keys come and go."""


@dataclass(frozen=True, slots=True)
class Bucket:
    """A place in an object store. Without an access key, AWS's own rules find one: variables, profile, role."""

    location: str
    """``s3://bucket/prefix``, without a slash at its end."""
    endpoint: str = ""
    """The URL of the store; "" for AWS."""
    region: str = ""
    access_key: str = ""
    secret_key: str = field(default="", repr=False)
    session_token: str = field(default="", repr=False)

    def spark_properties(self) -> Mapping[str, str]:
        """Return the properties of a catalog of Spark by which Iceberg writes to the bucket, with the secret key."""
        values = {
            ".io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
            ".s3.endpoint": self.endpoint,
            # A store of its own has no name of a host for each bucket.
            ".s3.path-style-access": "true" if self.endpoint else "",
            ".client.region": self._region,
            ".s3.access-key-id": self.access_key,
            ".s3.secret-access-key": self.secret_key,
            ".s3.session-token": self.session_token,
        }
        return {name: value for name, value in values.items() if value}

    def open(self) -> S3FileSystem:
        """Return the files of the store. Nothing is reached before one is read."""
        from pyarrow.fs import S3FileSystem  # noqa: PLC0415  (a lake in a folder does without)

        return S3FileSystem(
            access_key=self.access_key or None,
            secret_key=self.secret_key or None,
            session_token=self.session_token or None,
            region=self._region or None,
            endpoint_override=self.endpoint or None,
            connect_timeout=_CONNECT_SECONDS,
            request_timeout=_ANSWER_SECONDS,
        )

    @property
    def _region(self) -> str:
        return self.region or (_REGION_OF_ENDPOINTS if self.endpoint else "")


@dataclass(frozen=True, slots=True)
class LakeFolder:
    """The folder of a lake."""

    path: str
    """The folder of the rows that are not merged yet, and of the tables, unless they are in a bucket."""
    bucket: Bucket | None = None
    """The place of the tables in an object store."""

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Return the folder that ``to_json`` wrote. Raises ValueError or TypeError for any other text."""
        values = json.loads(text)
        bucket = values.pop("bucket", None)
        return cls(**values, bucket=bucket and Bucket(**bucket))

    def to_json(self) -> str:
        """Return it as JSON, with the secret key of its bucket."""
        return json.dumps(asdict(self))

    def portable(self) -> Self:
        """Return the folder itself: only tasks on this machine use it."""
        return self

    @property
    def hosts(self) -> Mapping[str, str]:
        """Return the folder in the place of a host: executors of another machine do not have it."""
        return {"lake": self.path}

    @property
    def tables(self) -> str:
        """Return the location of all tables."""
        return f"{self.bucket.location}/tables" if self.bucket else str(Path(self.path, "tables"))

    def staging(self, ledger: WarehouseConnection) -> Path:
        """Return the folder of the rows that are not merged yet. Another ledger counts windows of its own."""
        named = f"{ledger.host}:{ledger.port}/{ledger.database}"
        return Path(self.path, "staging", hashlib.sha256(named.encode()).hexdigest()[:_DIGITS])

    def find_refused(self) -> str:
        """Return why rows cannot be staged, or tables not be read; "" where nothing speaks against it.

        It writes nothing. A folder that does not exist is made by the first load.
        """
        folder = Path(self.path)
        found = next(each for each in (folder, *folder.parents) if os.path.lexists(each))
        if not (found.is_dir() and os.access(found, os.W_OK | os.X_OK)):
            return f"{found} cannot be written."
        if self.bucket is None:
            return ""
        name = self.bucket.location.removeprefix(S3).partition("/")[0]
        try:
            [info] = _open(self.bucket).get_file_info([name])
        except OSError as error:
            return f"the bucket {name} cannot be read: {error}."
        return f"there is no bucket {name}." if info.type.name == "NotFound" else ""

    def read(self, location: str) -> bytes | None:
        """Return a file of a table; None where there is none.

        Raises ConfigError where it is in a folder and the lake in a bucket, or the other way round: Spark would not
        reach it. Raises WarehouseUnavailableError for any other reason.
        """
        if location.startswith(S3) != (self.bucket is not None):
            raise ConfigError(
                "the lake",
                f"its connection names {self.tables}, and the catalog has {plain_location(location)}.",
                "Restore the connection. Only tables with new targets come to another kind of place.",
            )
        try:
            if self.bucket is None:
                return Path(plain_location(location)).read_bytes()
            with _open(self.bucket).open_input_stream(location.removeprefix(S3)) as file:
                return bytes(file.read())
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise WarehouseUnavailableError(
                "the lake",
                f"{plain_location(location)} cannot be read.",
                "Its tables are as they were. Find out whether the store is reached, and may be read.",
                str(error),
            ) from None


@lru_cache(maxsize=_STORES)
def _open(bucket: Bucket) -> S3FileSystem:
    return bucket.open()


def plain_location(location: str) -> str:
    """Return where a file is. Iceberg names one of a folder as a URI or as a path."""
    return location if location.startswith(S3) else "/" + location.removeprefix("file:").lstrip("/")


def folder_of(location: str) -> str:
    """Return the folder of a table, without a slash at its end. location: of its metadata."""
    return plain_location(location).rsplit("/", 2)[0]
