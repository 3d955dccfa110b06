"""The keys of ``pipelines.yaml`` that not every kind of source has, and the defaults that depend on the kind."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from floodmark.core.settings import DriftClass, DriftPolicy, NetSource

_NO_INSTANCES = "a table has no capture instances"
_NO_JOB = "there is no capture job that could lag"
_NO_STREAM = "its changes are not streamed"


@dataclass(frozen=True, slots=True)
class KindRules:
    """The rules of one kind of source. Each refused key has the reason."""

    source: Mapping[str, str] = field(default_factory=dict)
    """Refused in a source."""
    pipeline: Mapping[str, str] = field(default_factory=dict)
    """Refused in a pipeline and in its tables."""
    table: Mapping[str, str] = field(default_factory=dict)
    """Refused in a table."""
    drift: Mapping[str, str] = field(default_factory=dict)
    """Refused in ``drift`` of a pipeline and of a table."""
    policies: Mapping[str, str] = field(default_factory=dict)
    """Refused as a policy for a class of drift."""
    net: NetSource | None = None
    """Where net changes are computed; None: where the configuration says."""
    drift_defaults: Mapping[DriftClass, DriftPolicy] = field(default_factory=dict)
    """The defaults that differ from those of ``core.settings.ALLOWED``."""

    def of_table(self) -> Mapping[str, str]:
        """Return all keys that are refused in a table."""
        return {**self.pipeline, **self.table}


KINDS: Mapping[str, KindRules] = {
    "cdc": KindRules(
        source={"stream_conn_id": _NO_STREAM, "heartbeat": "its heartbeat is capture.heartbeat"},
        table={"key_spelling": "the changes have both spellings of a key"},
    ),
    "change_tracking": KindRules(
        source={
            "stream_conn_id": _NO_STREAM,
            "heartbeat": "each transaction records its changes itself",
            "capture": "there is no capture job",
            "retention": "there is no cleanup job that Floodmark could change; set the retention by ALTER DATABASE ..."
            " SET CHANGE_TRACKING (CHANGE_RETENTION = ...)",
        },
        pipeline={
            "net": "the server always computes net changes",
            "partitions": "one statement reads the changes of a table",
            "lag_limit": _NO_JOB,
            "backfill": _NO_INSTANCES,
        },
        table={"capture_instance": _NO_INSTANCES},
        drift={"unknown": "the server keeps no history of DDL"},
        policies={"propose": _NO_INSTANCES},
        net=NetSource.SERVER,
        drift_defaults={DriftClass.COLUMN_ADDED: DriftPolicy.ALERT},
    ),
    "compact": KindRules(
        source={
            "stream_conn_id": _NO_STREAM,
            "heartbeat": "each transaction records its changes itself",
            "capture": "there is no capture job",
            "retention": "there is no cleanup job; set purge_after_days in the connection's extra",
        },
        pipeline={
            "net": "each device always computes net changes",
            "partitions": "each device is read by itself",
            "lag_limit": _NO_JOB,
            "backfill": _NO_INSTANCES,
            "first_load": "a device that was not read before is read as a whole, with the changes of the others",
        },
        table={
            "capture_instance": _NO_INSTANCES,
            "key": "a row is known by its device and the table's own key",
            "key_spelling": "the changes have both spellings of a key",
            "security_filtered": "a file has no security policies",
        },
        drift={"unknown": "a file keeps no history of DDL"},
        policies={"propose": _NO_INSTANCES},
        net=NetSource.SERVER,
        drift_defaults={DriftClass.COLUMN_ADDED: DriftPolicy.ALERT},
    ),
    "event_stream": KindRules(
        source={
            "capture": "there is no capture job",
            "retention": "there is no cleanup job; the stream has its own retention",
        },
        pipeline={
            "net": "every event is a change, and Spark computes the net changes",
            "partitions": "the stream has its own partitions",
            "lag_limit": _NO_JOB,
            "backfill": _NO_INSTANCES,
        },
        table={"capture_instance": _NO_INSTANCES, "key_spelling": "the events have both spellings of a key"},
        drift={"unknown": "the stream has no history of DDL"},
        policies={"propose": _NO_INSTANCES},
        net=NetSource.SPARK,
        drift_defaults={DriftClass.COLUMN_ADDED: DriftPolicy.ALERT},
    ),
}


def refuse_keys(document: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield place and problem of each key that does not apply to the kind of its source.

    document: the file as it was read, which has only the keys that were written.
    """
    kinds = {name: _mapping(source).get("kind", "cdc") for name, source in _mapping(document.get("sources")).items()}
    for name, source in _mapping(document.get("sources")).items():
        if rules := _rules(kinds[name]):
            yield from _refused(f"sources.{name}", _mapping(source), rules.source, kinds[name])
    for name, pipeline in _mapping(document.get("pipelines")).items():
        written = _mapping(pipeline)
        kind = kinds.get(str(written.get("source")))
        if rules := _rules(kind):
            yield from _in_section(f"pipelines.{name}", written, rules.pipeline, rules, str(kind))
            tables = written.get("tables")
            for index, table in enumerate(tables if isinstance(tables, list) else []):
                at = f"pipelines.{name}.tables[{index}]"
                yield from _in_section(at, _mapping(table), rules.of_table(), rules, str(kind))


def drop_keys(document: dict[str, Any]) -> None:
    """Remove the keys that do not apply from a configuration with all defaults."""
    for source in document["sources"].values():
        _drop(source, KINDS[source["kind"]].source)
    for pipeline in document["pipelines"].values():
        rules = KINDS[document["sources"][pipeline["source"]]["kind"]]
        _drop(pipeline, rules.pipeline)
        _drop(pipeline.get("drift", {}), rules.drift)
        for table in pipeline["tables"]:
            _drop(table, rules.of_table())
            _drop(table.get("drift", {}), rules.drift)


def _in_section(
    at: str, written: Mapping[str, Any], refused: Mapping[str, str], rules: KindRules, kind: str
) -> Iterator[tuple[str, str]]:
    yield from _refused(at, written, refused, kind)
    drift = _mapping(written.get("drift"))
    yield from _refused(f"{at}.drift", drift, rules.drift, kind)
    for key, policy in drift.items():
        if (reason := rules.policies.get(str(policy))) is not None:
            yield f"{at}.drift.{key}", f"{policy} does not apply to a source of kind {kind}: {reason}"


def _refused(at: str, written: Mapping[str, Any], refused: Mapping[str, str], kind: str) -> Iterator[tuple[str, str]]:
    for key, reason in refused.items():
        if written.get(key) is not None:
            yield f"{at}.{key}", f"does not apply to a source of kind {kind}: {reason}"


def _drop(section: dict[str, Any], refused: Mapping[str, str]) -> None:
    for key in refused:
        section.pop(key, None)


def _rules(kind: object) -> KindRules | None:
    return KINDS.get(kind) if isinstance(kind, str) else None


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
