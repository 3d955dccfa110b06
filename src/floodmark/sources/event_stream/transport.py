"""``EventStream``: the messages of a topic, from Kafka or from a folder of captured events."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, Protocol

from fastavro import block_reader

from floodmark.carried_file import path_of, read_file
from floodmark.core.errors import ConfigError, SourceDamagedError
from floodmark.core.schema import Dataset, file_dataset, topic_dataset
from floodmark.sources.event_stream.doctor import RemovalRules

# --------------------------------------------------------------------------------------------------------------------
# ``EventStream``: the messages of a topic. Adapters: ``capture_folder``, ``kafka_stream``.
#
# A topic has partitions, and the messages of a partition have offsets without holes. Offsets are those that a consumer
# sees: with Event Hubs, the sequence numbers.


Place = tuple[int, int]
"""A partition and an offset."""


@dataclass(frozen=True, slots=True)
class PartitionEnds:
    """The messages that a partition has: ``[low, high)``."""

    low: int
    """The offset of the oldest message; ``high`` where there is none."""
    high: int
    """The offset that the next message will have."""


class RawMessage(NamedTuple):
    """A message as it was read."""

    offset: int
    body: bytes | None
    """None for a message without one."""


@dataclass(frozen=True, slots=True)
class KeptMessages:
    """How long a topic keeps its messages."""

    rules: RemovalRules | None
    """None where the broker does not show them."""
    refusal: str
    """The reason why it does not."""
    times: Mapping[Place, datetime]
    """The times in UTC, by which retention counts, of messages that were asked for."""


class StreamGapError(Exception):
    """Messages of a planned window are not there, or no longer. The text has no content of a message."""


class EventStream(Protocol):
    """A topic. It is picklable, with the secrets of its connection. Methods raise from ``core.errors``."""

    @property
    def topic(self) -> str:
        """Return the name of the topic."""

    def read_ends(self) -> Mapping[int, PartitionEnds]:
        """Return what each partition has now. Raises ConfigError for a topic that does not exist."""

    def read(self, partition: int, begin: int, end: int) -> Iterator[Sequence[RawMessage]]:
        """Yield the messages ``[begin, end)`` of a partition, each once and in order.

        Raises StreamGapError where one of them is missing.
        """

    def read_retention(self, places: Collection[Place]) -> KeptMessages | None:
        """Return how long messages are kept, with the times of some. None: the owner of a folder removes its files."""


# --------------------------------------------------------------------------------------------------------------------
# ``CaptureFolder``: a topic as Event Hubs Capture writes it into a folder of Avro files.
#
# A file is ``<partition>/<year>/<month>/<day>/<hour>/<minute>/<second>.avro``, named by the time at which its window
# closed; an idle partition gets empty files. Numbers of messages are dense within a partition, and files are in the
# order of their paths (docs/reference/event_stream.md, "Capture folders"). A file whose name begins with a dot, or ends
# with another suffix, is being written.


_NUMBER = "SequenceNumber"
_BODY = "Body"
_DEPTH = 6
_PARTITION = re.compile(r"\d{1,5}", re.ASCII)
_PART = re.compile(r"\d{2,4}(?:\.avro)?", re.ASCII)


@dataclass(frozen=True, slots=True)
class CaptureFolder:
    """``transport.EventStream``. Raises ValueError for a relative path.

    path: the folder of the event hub, whose folders are the partitions.
    """

    path: str

    def __post_init__(self) -> None:
        if not Path(self.path).is_absolute():
            raise ValueError(f"{self.path} is not an absolute path")

    @property
    def topic(self) -> str:
        return Path(self.path).name

    @property
    def dataset(self) -> Dataset:
        return file_dataset(self.path)

    @property
    def hosts(self) -> tuple[str, ...]:
        """Return no hosts: every machine that reads must have the folder under this path."""
        return ()

    def portable(self) -> CaptureFolder:
        """Return the folder."""
        return self

    def read_ends(self) -> Mapping[int, PartitionEnds]:
        try:
            folders = [each for each in Path(self.path).iterdir() if _PARTITION.fullmatch(each.name) and each.is_dir()]
        except OSError as error:
            raise ConfigError(
                self.path,
                f"the folder cannot be read ({error.strerror}).",
                "Mount it, or correct the path of the stream: the folder of the event hub.",
            ) from None
        return {int(each.name): _ends(each) for each in sorted(folders, key=lambda each: int(each.name))}

    def read(self, partition: int, begin: int, end: int) -> Iterator[Sequence[RawMessage]]:
        folder = self._folder(partition)
        expected = begin
        for file in _files_from(folder, begin):
            if expected >= end:
                return
            for block in _blocks(file, expected):
                found = [each for each in block if expected <= each.offset < end]
                if found:
                    _require_dense(folder, found, expected)
                    expected = found[-1].offset + 1
                    yield found
        if expected < end:
            raise StreamGapError(f"partition {partition} has no message {expected}, and the window ends at {end}")

    def read_retention(self, places: Collection[Place]) -> None:
        """Return None: rules of the storage remove files, and nothing in the folder shows them."""

    def _folder(self, partition: int) -> Path:
        found = [each for each in Path(self.path).iterdir() if each.name.isdecimal() and int(each.name) == partition]
        if not found:
            raise StreamGapError(f"there is no partition {partition}")
        return found[0]


def _require_dense(folder: Path, found: Sequence[RawMessage], expected: int) -> None:
    for number, message in enumerate(found, expected):
        if message.offset != number:
            raise StreamGapError(f"partition {folder.name} has no message {number}, but message {message.offset}")


def _ends(folder: Path) -> PartitionEnds:
    """Return the ends of a partition: those of its first and its last file with messages."""
    firsts = (found for file in list_files(folder) if (found := _first_offset(file)) is not None)
    lasts = (found for file in list_files(folder, newest_first=True) if (found := _last_offset(file)) is not None)
    low, last = next(firsts, None), next(lasts, None)
    return PartitionEnds(0, 0) if low is None or last is None else PartitionEnds(low, last + 1)


def _files_from(folder: Path, begin: int) -> Sequence[Path]:
    """Return the files from the one on that has a message, oldest first. It is found from the end: windows are new."""
    wanted: list[Path] = []
    for file in list_files(folder, newest_first=True):
        wanted.append(file)
        first = _first_offset(file)
        if first is not None and first <= begin:
            break
    return wanted[::-1]


def list_files(folder: Path, *, newest_first: bool = False) -> Iterator[Path]:
    """Yield the finished files below a partition's folder in the order of their paths."""
    yield from _walk(folder, 1, newest_first)


def _walk(folder: Path, depth: int, newest_first: bool) -> Iterator[Path]:
    try:
        found = sorted((each for each in folder.iterdir() if _PART.fullmatch(each.name)), reverse=newest_first)
    except FileNotFoundError:
        return  # a retention rule of the storage removed it
    for each in found:
        if depth == _DEPTH:
            if each.suffix == ".avro":
                yield each
        elif each.is_dir():
            yield from _walk(each, depth + 1, newest_first)


def _first_offset(file: Path) -> int | None:
    """Return the offset of the first message of a file, None for an empty file or one that is gone."""
    return next((block[0].offset for block in _blocks(file)), None)


def _last_offset(file: Path) -> int | None:
    """Return the offset of the last message of a file. Only its last block is decoded."""
    newest = None
    with suppress(FileNotFoundError), file.open("rb") as opened:
        for block in _raw_blocks(opened, file):
            newest = block if block.num_records else newest
    return _messages(newest, file)[-1].offset if newest is not None else None


def _blocks(file: Path, begin: int = 0) -> Iterator[list[RawMessage]]:
    """Yield the messages of a file from the block on that has message ``begin``. Those before it are not decoded."""
    following = None
    with suppress(FileNotFoundError), file.open("rb") as opened:
        for block in _raw_blocks(opened, file):
            if following is not None and following + block.num_records <= begin:
                following += block.num_records
            elif messages := _messages(block, file):
                following = messages[-1].offset + 1
                yield messages


def _raw_blocks(opened: BinaryIO, file: Path) -> Iterator[Any]:
    try:
        yield from block_reader(opened)
    except (ValueError, EOFError, KeyError, IndexError, TypeError) as error:
        raise _damaged(file, error) from None


def _messages(block: Any, file: Path) -> list[RawMessage]:
    try:
        return [RawMessage(each[_NUMBER], each[_BODY]) for each in block]
    except (ValueError, EOFError, KeyError, IndexError, TypeError) as error:
        raise _damaged(file, error) from None


def _damaged(file: Path, error: Exception) -> SourceDamagedError:
    return SourceDamagedError(
        str(file),
        f"it is no file of Event Hubs Capture, or it is cut off ({type(error).__name__}).",
        "Copy it from the storage account again.",
    )


# --------------------------------------------------------------------------------------------------------------------
# ``KafkaTopic``: where a topic is that is read by the Kafka protocol: Apache Kafka, or the endpoint of Event Hubs.
#
# ``kafka_stream`` reads it, and needs the extra ``floodmark[kafka]``.


SETTINGS = frozenset({"security.protocol", "sasl.mechanism", "sasl.mechanisms", "sasl.username", "client.id"})
"""The settings of librdkafka that a connection may have, besides those that are fields of ``KafkaTopic``."""


@dataclass(frozen=True, slots=True)
class KafkaTopic:
    """A topic and the login that reads it. It travels as JSON."""

    servers: str
    """Hosts with their ports, with commas between them."""
    topic: str
    settings: Mapping[str, str] = field(default_factory=dict)
    """Of ``SETTINGS``."""
    password: str = field(default="", repr=False)
    ca_file: str = ""
    """The file (PEM) with the only trusted authorities; empty for those of the system."""
    ca_pem: str = field(default="", repr=False)
    """The contents of ``ca_file``, where the connection has travelled to another machine."""

    def portable(self) -> KafkaTopic:
        """Return the topic with the contents of its file, for other machines. Raises ValueError."""
        return replace(self, ca_pem=read_file(self.ca_file, str(self), "ca_file")) if self.ca_file else self

    @property
    def dataset(self) -> Dataset:
        return topic_dataset(self.servers, self.topic)

    @property
    def hosts(self) -> tuple[str, ...]:
        """Return the hosts by which the cluster is found."""
        return tuple(each.strip().rpartition(":")[0] or each.strip() for each in self.servers.split(","))

    def __str__(self) -> str:
        return f"{self.topic} at {self.servers}"

    @property
    def ca_path(self) -> str:
        """Return the path of the trusted authorities on this machine; empty for those of the system."""
        return path_of(self.ca_pem) if self.ca_pem else self.ca_file
