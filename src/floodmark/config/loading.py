"""Read ``pipelines.yaml`` and report all its problems at once, each with its place in the file; write the first one."""

from __future__ import annotations

import contextlib
import difflib
import json
import re
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from floodmark.config import models, sections
from floodmark.config.models import Config, PipelineConfig, TableConfig, keys_of
from floodmark.config.sections import FOLDER, PARSE_RULES
from floodmark.core.errors import ConfigError
from floodmark.core.naming import history_view_name, live_view_name, snake_case, versions_name, with_suffix
from floodmark.core.patterns import TablePattern, is_pattern, shortened
from floodmark.core.schema import TableName
from floodmark.core.settings import DriftClass, Style
from floodmark.core.snapshot import SurveyedTable
from floodmark.sources.kind import KINDS, KindRules, find_kind

_KEYS = {
    name
    for section in (*vars(models).values(), *vars(sections).values())
    if isinstance(section, type) and "__pydantic_fields__" in vars(section)
    for name in keys_of(section)
}


def load_config(path: Path | str, *, parse_rules: bool = True) -> Config:
    """Return the configuration of a file.

    Raises ConfigError with every problem of the file in its message, one per line.

    parse_rules False leaves the SQL of rules unparsed, for a caller that only needs the shape and cannot spend the time
    to import a parser.
    """
    document = _read(Path(path))
    problems: list[tuple[str, str]] = []
    config = None
    try:
        config = Config.model_validate(document, context={PARSE_RULES: parse_rules, FOLDER: Path(path).parent})
    except ValidationError as error:
        found = error.errors(include_url=False)
        problems += [(_place(each["loc"]), _words(each)) for each in found if not _follows(each, found)]
    problems += [problem for problem in _cross_check(document) if problem not in problems]
    problems += (*_cross_check_views(config), *_cross_check_case(config)) if config else ()
    if problems or config is None:
        lines = "".join(f"\n  {place}: {words}" for place, words in sorted(problems))
        count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
        raise ConfigError(str(path), f"{count}:{lines}")
    return config


def dump_config(config: Config) -> str:
    """Return the configuration in effect, with every default written out, as YAML that ``load_config`` accepts."""
    document = config.model_dump(mode="json", exclude_none=True)
    for name, pipeline in config.pipelines.items():
        written = document["pipelines"][name] | {"schedule": pipeline.schedule}
        tables = written.pop("tables")
        for table, entry in zip(tables, pipeline.tables, strict=True):
            settings = config.table_settings(name, entry)
            table["net"] = settings.net.value
            table["drift"] = {kind.value: settings.drift.of(kind).value for kind in DriftClass}
        keys = (*keys_of(TableConfig), "exclude")
        ordered = [{key: table[key] for key in keys if key in table} for table in tables]
        document["pipelines"][name] = {key: written[key] for key in keys_of(PipelineConfig) if key in written}
        document["pipelines"][name]["tables"] = ordered
    drop_keys(document)
    return yaml.safe_dump(document, sort_keys=False, allow_unicode=True)


class _ExactLoader(yaml.SafeLoader):
    """A YAML loader that refuses a duplicate key, and reads yes, no, on and off as text.

    YAML keeps the last one of duplicate keys, so that a pipeline would be lost silently. A column may be called No.
    """

    yaml_implicit_resolvers = {  # noqa: RUF012  (the base class declares it so)
        first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:bool"]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        """Return the mapping of a node. Raises ConstructorError for a duplicate key."""
        seen = set()
        for key_node in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
            if key_node.value in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"duplicate key {key_node.value}", key_node.start_mark
                )
            seen.add(key_node.value)
        return yaml.constructor.SafeConstructor.construct_mapping(self, node, deep)


class _FastLoader(yaml.CSafeLoader):
    """The same in C, ten times as fast. The places in its errors are less exact."""

    yaml_implicit_resolvers = _ExactLoader.yaml_implicit_resolvers
    construct_mapping = _ExactLoader.construct_mapping


def _read(path: Path) -> object:
    try:
        text = path.read_text(encoding="utf-8")
        with contextlib.suppress(yaml.YAMLError):
            return yaml.load(text, _FastLoader)  # noqa: S506  (a SafeLoader)
        return yaml.load(text, _ExactLoader)  # noqa: S506
    except OSError as error:
        raise ConfigError(str(path), f"the file could not be read: {error.strerror}.") from None
    except UnicodeDecodeError as error:
        raise ConfigError(str(path), f"the file is not UTF-8 text: {error.reason}.") from None
    except yaml.YAMLError as error:
        words = getattr(error, "problem", None) or str(error)
        mark = getattr(error, "problem_mark", None)
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        raise ConfigError(str(path), f"the file is not YAML: {where}{words}.") from None


def _follows(error: Mapping[str, Any], found: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether a list counts as too short only because its items have errors of their own."""
    place = error["loc"]
    return error["type"] == "too_short" and any(
        each["loc"][: len(place)] == place and len(each["loc"]) > len(place) for each in found
    )


def _place(location: tuple[int | str, ...]) -> str:
    text = ""
    for part in location:
        if isinstance(part, str) and part.startswith("["):  # not of the file: "[key]", or the tag of a union
            continue
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text or "the file"


def _unknown(key: str) -> str:
    if key in _KEYS:
        return "unknown key in this place; another section has it"
    close = difflib.get_close_matches(key, _KEYS, n=1)
    return "unknown key" + (f" (did you mean {close[0]}?)" if close else "")


def _words(error: Mapping[str, Any]) -> str:
    message = str(error["msg"]).removeprefix("Value error, ")
    if error["type"] in ("extra_forbidden", "unexpected_keyword_argument"):
        if error["loc"][-1] == "exclude":
            return "applies to a pattern of tables, such as source: dbo.*"
        return _unknown(str(error["loc"][-1]))
    if error["type"] == "missing":
        return "is missing"
    if error["type"] == "too_short":
        return "has no entry"
    if error["type"] == "string_pattern_mismatch":
        return f"{error['input']!r} is not a valid name"
    return (
        (message[:1].lower() + message[1:])
        .replace("valid tuple", "list")
        .replace("valid dictionary", "mapping")
        .replace("dictionary or an instance", "mapping or instance")
    )


def _cross_check(document: object) -> Iterator[tuple[str, str]]:
    """Yield the problems that no single value shows.

    The check works on the file as it was read, so that it also finds its problems in a file that is not valid.
    """
    yield from refuse_keys(_mapping(document))
    sources = _mapping(_mapping(document).get("sources"))
    targets: dict[TableName, str] = {}
    for name, pipeline in _mapping(_mapping(document).get("pipelines")).items():
        place = f"pipelines.{name}"
        source = _mapping(pipeline).get("source")
        if isinstance(source, str) and source not in sources:
            there = f" (there are: {', '.join(map(str, sources))})" if sources else ""
            yield f"{place}.source", f"there is no source {source}{there}"
        tables = _mapping(pipeline).get("tables")
        seen: dict[str, str] = {}
        for index, table in enumerate(tables if isinstance(tables, list) else []):
            at = f"{place}.tables[{index}]"
            yield from _cross_check_table(at, _mapping(table), seen, targets)
    yield from _cross_check_heartbeats(_mapping(document))


def _cross_check_views(config: Config) -> Iterator[tuple[str, str]]:
    """Yield the tables of a valid file that need the name of another one's target."""
    places = {
        table.target: (f"pipelines.{name}.tables[{index}]", table)
        for name, pipeline in config.pipelines.items()
        for index, table in enumerate(pipeline.tables)
    }
    for target, (at, table) in places.items():
        if table.live_view and (view := live_view_name(target)) in places:
            yield f"{at}.live_view", f"the view {view} would have the name of the target of {places[view][0]}"
        if table.style is Style.HISTORY:
            for needed in {versions_name(target), history_view_name(target)} & places.keys():
                yield f"{at}.style", f"its history needs the name {needed}, of the target of {places[needed][0]}"


def _cross_check_case(config: Config) -> Iterator[tuple[str, str]]:
    """Yield the tables of a lake whose names, or schemas, differ in case alone from those of tables before them."""
    seen: dict[str, tuple[str, str]] = {}
    for name, pipeline in config.pipelines.items() if config.warehouse.kind == "iceberg" else ():
        for index, table in enumerate(pipeline.tables):
            at = f"pipelines.{name}.tables[{index}]"
            written = [table.target, *([versions_name(table.target)] if table.style is Style.HISTORY else [])]
            for part in dict.fromkeys(part for each in written for part in (each.schema, str(each))):
                first, place = seen.setdefault(part.casefold(), (part, at))
                if first != part:
                    words = f"{part} differs in case alone from {first} of {place}: readers of a lake take them for one"
                    yield f"{at}.target", words


def _cross_check_heartbeats(document: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the heartbeats that no pipeline reads, or that a filter may leave out."""
    read: dict[object, list[TablePattern]] = {}
    filtered: set[tuple[str, TableName | None]] = set()
    for pipeline in map(_mapping, _mapping(document.get("pipelines")).values()):
        written = pipeline.get("tables")
        tables = [*map(_mapping, written if isinstance(written, list) else [])]
        found = (each for table in tables if (each := _table_pattern(table.get("source"))) is not None)
        source_name = str(pipeline.get("source"))
        read.setdefault(source_name, []).extend(found)
        filtered.update((source_name, _table_name(each.get("source"))) for each in tables if each.get("where"))
    for name, source in _mapping(document.get("sources")).items():
        table = _table_name(_mapping(_mapping(source).get("heartbeat")).get("table"))
        if table is not None and not any(_reads(each, table) for each in read.get(str(name), ())):
            words = f"no pipeline of the source has the table {table}: add it to one, with the same spelling"
            yield f"sources.{name}.heartbeat.table", words
        if table is not None and (str(name), table) in filtered:
            words = f"{table} has a filter (where), which may leave out its beats: remove the filter"
            yield f"sources.{name}.heartbeat.table", words


def _reads(entry: TablePattern, table: TableName) -> bool:
    return entry.matches(table) if entry.is_wild else entry.name == table


def _cross_check_table(
    at: str, table: Mapping[str, Any], seen: dict[str, str], targets: dict[TableName, str]
) -> Iterator[tuple[str, str]]:
    source, target = _table_name(table.get("source")), _table_name(table.get("target"))
    if source is not None:
        # Only in some collations do names that differ in case belong to two tables; here they never do.
        first = seen.setdefault(str(source).casefold(), at)
        if first != at:
            yield f"{at}.source", f"{source} is already read by {first}"
    # Which targets a pattern fills is known by the run that asks the source.
    is_one = not is_pattern(str(table.get("source")))
    if is_one and target is not None and (first := targets.setdefault(target, at)) != at:
        yield f"{at}.target", f"{target} is already filled by {first}"
    rules = table.get("rules")
    names: dict[str, int] = {}
    for index, rule in enumerate(rules if isinstance(rules, list) else []):
        name = _mapping(rule).get("name")
        if isinstance(name, str) and names.setdefault(name, index) != index:
            yield f"{at}.rules[{index}].name", f"{name} is already the name of rule {names[name]}"


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _table_name(value: object) -> TableName | None:
    try:
        return TableName.parse(value) if isinstance(value, str) else None
    except ValueError:
        return None


def _table_pattern(value: object) -> TablePattern | None:
    try:
        return TablePattern.parse(value) if isinstance(value, str) else None
    except ValueError:
        return None


# --------------------------------------------------------------------------------------------------------------------
# The keys that do not apply to the kind of a source: refused if written, left out of dumps.


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
            yield from _refused(
                f"pipelines.{name}", written, rules.styles.get(str(written.get("style")), {}), str(kind)
            )
            tables = written.get("tables")
            for index, table in enumerate(tables if isinstance(tables, list) else []):
                at = f"pipelines.{name}.tables[{index}]"
                yield from _in_section(at, _mapping(table), rules.of_table(), rules, str(kind))
                style = str(_mapping(table).get("style") or written.get("style"))
                yield from _refused(at, _mapping(table), rules.styles.get(style, {}), str(kind))
                if rules.patterns and is_pattern(str(_mapping(table).get("source"))):
                    yield f"{at}.source", f"a source of kind {kind} takes no patterns: {rules.patterns}"


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


# --------------------------------------------------------------------------------------------------------------------
# The first configuration of an installation, as text with comments.


_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")
_SURROGATE = re.compile("[\ud800-\udfff]")
_TEXT = """\
# The configuration of Floodmark. Check it with: floodmark config check
sources:
  {name}:
    conn_id: {source}    # an Airflow connection of type mssql; its schema is the database

warehouse:
  conn_id: {warehouse}    # an Airflow connection of type postgres

pipelines:
  {name}:
    source: {name}
    schedule: "*/5 * * * *"    # cron, UTC
    deletes: soft    # hard: deleted rows are deleted in the target too
    naming: snake_case    # columns of targets: CustomerID is customer_id; keep: as at the source
    tables:
{tables}"""


def first_config(name: str, source: str, warehouse: str, tables: Sequence[SurveyedTable]) -> str:
    """Return the text of a configuration with one pipeline.

    name: of the source, the pipeline and the schema of the targets. source, warehouse: ids of connections. A table
    without a primary key is written as a comment, because its key has to be declared, and so is one that a
    configuration cannot name.
    """
    schema = shortened(snake_case(name, "table"), name)
    targets = _targets([table.name for table in tables])
    first: dict[str, TableName] = {}
    lines = []
    for table, target in zip(tables, targets, strict=True):
        namesake = first.setdefault(str(table.name).casefold(), table.name)
        lines.append(_lines(table, f"{schema}.{target}", _obstacle(table, namesake)))
    return _TEXT.format(name=_scalar(name), source=_scalar(source), warehouse=_scalar(warehouse), tables="".join(lines))


def _obstacle(table: SurveyedTable, namesake: TableName) -> str:
    """Return why a table cannot be written as it is; empty if it can."""
    if namesake != table.name:
        return f"its name differs only in case from that of {_scalar(str(namesake))}: one pipeline reads one of the two"
    if _SURROGATE.search(str(table.name)) or not _reads_back(table.name):
        return "its name cannot be written in a file"
    return "" if table.key else "no primary key: name columns that are unique and never NULL, or set style: log"


def _reads_back(name: TableName) -> bool:
    try:
        return TableName.parse(str(name)) == name
    except ValueError:
        return False


def _lines(table: SurveyedTable, target: str, obstacle: str) -> str:
    rows = "" if table.rows is None else f"    # {table.rows:,} rows"
    source = f"- source: {_scalar(str(table.name))}{rows}"
    if not obstacle:
        return f"      {source}\n        target: {_scalar(target)}\n"
    key = "" if table.key else "      #   key: []\n"
    return f"      # {obstacle}\n      # {source}\n      #   target: {_scalar(target)}\n{key}"


def _targets(tables: Sequence[TableName]) -> list[str]:
    """Return the name of each target: that of its table, with its schema and then a number if it is taken."""
    counts = Counter(snake_case(table.name, "table") for table in tables)
    taken: set[str] = set()
    for_all = []
    for table in tables:
        own = snake_case(table.name, "table")
        full = shortened(f"{snake_case(table.schema, 'table')}_{own}", str(table))
        own = shortened(own, str(table)) if counts[own] == 1 else full
        numbered = (with_suffix(full, str(number)) for number in range(2, len(tables) + 2))
        target = next(name for name in (own, full, *numbered) if name not in taken)
        taken.add(target)
        for_all.append(target)
    return for_all


def _scalar(text: str) -> str:
    # Plain "null" is no text in YAML. A string of JSON is one of YAML, if what does not print is escaped.
    if _PLAIN.fullmatch(text) and yaml.safe_load(text) == text:
        return text
    return "".join(map(_printable, json.dumps(text, ensure_ascii=False)))


def _printable(character: str) -> str:
    if character.isprintable():
        return character
    code = ord(character)
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"
