"""The page of the settings: every key of ``pipelines.yaml``, from the models that read it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from datetime import timedelta
from enum import Enum
from importlib import import_module
from typing import get_args

import griffe
from pydantic import BaseModel, ByteSize
from pydantic.dataclasses import is_pydantic_dataclass

from documents.source_text import as_markdown, module_of, table, text_of
from floodmark.config.models import Config, TableConfig, keys_of
from floodmark.config.sections import DriftConfig
from floodmark.core.settings import ALLOWED, DriftClass, TableDefaults
from floodmark.sources.kind import KINDS

_FORMS = {
    "SourceTableName": "a table of the source, `schema.table`",
    "TargetTableName": "a table of the warehouse, `schema.table`",
    "SourcePattern": "a pattern, `schema.*`",
    "TargetPattern": "a table of the warehouse with `*` for the name, `schema.*`",
    "ExpectationType": "a type of Great Expectations, such as `expect_column_values_to_be_between`",
    "ExpectationKwargs": "a mapping of its arguments, by Great Expectations' names",
    "WrittenPattern": "a table of the source or a pattern",
    "ConnectionId": "the id of an Airflow connection",
    "KindName": " or ".join(f"`{kind}`" for kind in KINDS),
    "PipelineName": "a name of letters, digits, `_`, `.` and `-`",
    "RuleName": "a name of letters, digits and `_`",
    "ChannelName": "a name of letters, digits, `_`, `.` and `-`",
    "RuleSql": "a condition in PostgreSQL's SQL",
    "ColumnName": "the name of a column, as the source spells it",
    "TableColumns": "a mapping from a column: `drop`, `keep`, or a mapping with `as`, `mask` or both",
    "TableDerived": "a mapping from a column: an expression in PostgreSQL's SQL",
    "TableFilter": "a condition in T-SQL",
    "AssetUri": "the URI of an asset, such as `s3://bucket/done`",
    "TagName": "a text",
    "Any": "what the executor takes",
    "EmailAddress": "an e-mail address",
    "Cron": "a cron expression of five fields, or `@daily` and the like",
    "TimeZone": "the name of a time zone, such as `Europe/Vienna`",
    "Duration": "a number with s, m, h or d, such as `30m`",
    "Days": "a number with d or y, such as `90d` or `7y`; a year has 366 days",
    "FarDay": "a day from `2100-01-01` on, such as `9999-12-31`",
    "KeptTime": "a number with s, m, h or d, such as `400d`, of at least 30 days",
    "LobBatch": "a size, such as `64MB`, from 1 MB to 1 GB",
    "ByteSize": "a size, such as `10GB`",
    "PositiveInt": "a whole number from 1",
    "NonNegativeInt": "a whole number from 0",
    "int": "a whole number",
    "float": "a number",
    "bool": "`true` or `false`",
    "str": "a text",
}
"""The words for each form of a value that is not a section or a choice. A form without words stops the generator."""
_UNITS = (("d", 86400), ("h", 3600), ("m", 60), ("s", 1))


def settings_page() -> str:
    """Return the page. Raises KeyError for a form of a value that has no words here."""
    sections: dict[str, list[str]] = {}
    _add_section(Config, sections)
    return (
        "\n".join(
            [
                "# Settings of pipelines.yaml",
                "",
                "Each key with its form and its default. An unknown key is refused.",
                "[Configuration](../configuration.md) explains the settings with examples, and",
                "`floodmark config check --show` prints a file with all defaults.",
                "",
                *(line for section in sections.values() for line in section),
            ]
        ).rstrip()
        + "\n"
    )


def _add_section(section: type, sections: dict[str, list[str]]) -> None:
    """Add the section of a model or an enumeration, and after it those that it refers to."""
    if section.__name__ in sections:
        return
    written = module_of(section.__module__).classes[section.__name__]
    lines = [f"## {_title(section)}", "", as_markdown(section.__doc__ or "").replace("None", "`null`"), ""]
    sections[section.__name__] = lines
    if issubclass(section, Enum):
        rows = [[f"`{each.value}`", text_of(written.attributes[each.name])] for each in section]
        lines += table(["value", "meaning"], rows)
        return
    rows = [
        [f"`{name}`", _form(*_annotation(section, name), sections), _default(section, name), _meaning(section, name)]
        for name in keys_of(section)
    ]
    lines += table(["key", "form", "default", "meaning"], rows)
    for name in keys_of(section):
        for each in _referred(*_annotation(section, name)):
            _add_section(each, sections)


def _declarations(section: type, name: str) -> list[griffe.Attribute]:
    """Return the declarations of a key, first that of the section itself, then those of the classes it extends."""
    own = [each for each in section.__mro__ if each.__module__.startswith("floodmark.")]
    found = [module_of(each.__module__).classes[each.__name__].attributes.get(name) for each in own]
    return [each for each in found if each is not None]


def _annotation(section: type, name: str) -> tuple[str, str]:
    """Return the annotation of a key, and the module whose names it has."""
    declared = _declarations(section, name)[0]
    return str(declared.annotation).removesuffix(" | None"), declared.module.path


def _meaning(section: type, name: str) -> str:
    """Return the words for a key: its own, else those of its section."""
    own = next(filter(None, map(text_of, _declarations(section, name))), "")
    if own:
        return own.replace("None", "`null`")
    if section is DriftConfig:
        first, *others = (f"`{each.value}`" for each in ALLOWED[DriftClass(name)])
        return f"{first} where it is not set; allowed: " + ", ".join((first, *others))
    for referred in _referred(*_annotation(section, name)):
        return as_markdown(referred.__doc__ or "").partition("\n")[0]
    return "The kind of this section." if name == "kind" else ""


def _title(section: type) -> str:
    return "The file" if section.__name__ == "Config" else section.__name__.removesuffix("Config")


def _referred(annotation: str, module: str) -> Iterator[type]:
    """Yield the models and enumerations of Floodmark that an annotation names."""
    for name in re.findall(r"\w+", annotation):
        yield from _classes(getattr(import_module(module), name, None))


def _classes(named: object) -> Iterator[type]:
    """Yield the models and enumerations of a class, or of an alias for several."""
    if isinstance(named, type) and (issubclass(named, (BaseModel, Enum)) or is_pydantic_dataclass(named)):
        yield named
    for each in get_args(named):
        yield from _classes(each)


def _form(annotation: str, module: str, sections: dict[str, list[str]]) -> str:
    if choice := re.fullmatch(r"Literal\[(.*)\]", annotation):
        return " or ".join(f"`{each.strip()[1:-1]}`" for each in choice[1].split(","))
    if listed := re.fullmatch(r"tuple\[(.*), \.\.\.\]", annotation):
        return f"a list: {_form(listed[1], module, sections)}"
    if mapped := re.fullmatch(r"dict\[(.*?), (.*)\]", annotation):
        return f"a mapping from a name: {_form(mapped[2], module, sections)}"
    referred = list(_referred(annotation, module))
    if referred:
        return " or ".join(f"[{_title(each)}](#{_title(each).lower().replace(' ', '-')})" for each in referred)
    return _FORMS[annotation]


def _default(section: type, name: str) -> str:
    field = keys_of(section)[name]
    if field.is_required():
        return "required"
    # A table has what its pipeline says.
    value = (
        None
        if issubclass(section, TableConfig) and name in {each.name for each in fields(TableDefaults)}
        else field.default
    )
    if value is None:
        return "`null`"
    if value == ():
        return "none"
    if isinstance(value, BaseModel) or is_dataclass(value):
        return "its defaults"
    return f"`{_written(value)}`"


def _written(value: object) -> object:
    """Return a value as a file has it."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, timedelta):
        seconds = int(value.total_seconds())
        unit, size = next(each for each in _UNITS if seconds % each[1] == 0)
        return f"{seconds // size}{unit}"
    return value.human_readable(decimal=True) if isinstance(value, ByteSize) else value
