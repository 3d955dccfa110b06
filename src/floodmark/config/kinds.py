"""The keys of ``pipelines.yaml`` that do not apply to the kind of a source: refused if written, left out of dumps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from floodmark.sources.kind import KINDS, KindRules, find_kind


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
        _drop(source, find_kind(source["kind"]).rules.source)
    for pipeline in document["pipelines"].values():
        rules = find_kind(document["sources"][pipeline["source"]]["kind"]).rules
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
    return find_kind(kind).rules if isinstance(kind, str) and kind in KINDS else None


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
