"""The page of the settings: every key of ``pipelines.yaml``, from the models that read it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta
from enum import Enum
from importlib import import_module
from typing import get_args

import griffe
from pydantic import BaseModel, ByteSize
from pydantic.fields import FieldInfo

from documents.source_text import as_markdown, module_of, table, text_of
from floodmark.config.models import Config, PipelineConfig, TableConfig
from floodmark.config.sections import DriftConfig
from floodmark.core.settings import ALLOWED, DriftClass
from floodmark.sources.kind import KINDS

_FORMS = {
    "SourceTableName": "a table of the source, `schema.table`",
    "TargetTableName": "a table of the warehouse, `schema.table`",
    "ConnectionId": "the id of an Airflow connection",
    "KindName": " or ".join(f"`{kind}`" for kind in KINDS),
    "PipelineName": "a name of letters, digits, `_`, `.` and `-`",
    "RuleName": "a name of letters, digits and `_`",
    "ChannelName": "a name of letters, digits, `_`, `.` and `-`",
    "RuleSql": "a condition in PostgreSQL's SQL",
    "ColumnName": "the name of a column, as the source spells it",
    "EmailAddress": "an e-mail address",
    "Cron": "a cron expression of five fields, or `@daily` and the like",
    "TimeZone": "the name of a time zone, such as `Europe/Vienna`",
    "Duration": "a number with s, m, h or d, such as `30m`",
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


def _add_section(model: type[BaseModel] | type[Enum], sections: dict[str, list[str]]) -> None:
    """Add the section of a model or an enumeration, and after it those that it refers to."""
    if model.__name__ in sections:
        return
    written = module_of(model.__module__).classes[model.__name__]
    lines = [f"## {_title(model)}", "", as_markdown(model.__doc__ or "").replace("None", "`null`"), ""]
    sections[model.__name__] = lines
    if issubclass(model, Enum):
        rows = [[f"`{each.value}`", text_of(written.attributes[each.name])] for each in model]
        lines += table(["value", "meaning"], rows)
        return
    rows = [
        [f"`{name}`", _form(_annotation(model, name), model, sections), _default(field), _meaning(model, name)]
        for name, field in model.model_fields.items()
    ]
    lines += table(["key", "form", "default", "meaning"], rows)
    for annotation in (_annotation(model, name) for name in model.model_fields):
        for each in _referred(annotation, model):
            _add_section(each, sections)


def _field(model: type[BaseModel], name: str) -> griffe.Attribute:
    for each in model.__mro__:
        if each.__module__.startswith("floodmark."):
            found = module_of(each.__module__).classes[each.__name__].attributes
            if name in found:
                return found[name]
    raise LookupError(f"{model.__name__}.{name} is nowhere in the code")


def _annotation(model: type[BaseModel], name: str) -> str:
    return str(_field(model, name).annotation).removesuffix(" | None")


def _meaning(model: type[BaseModel], name: str) -> str:
    """Return the words for a key: its own, else those of the pipeline's key that it replaces, else of its section."""
    own = text_of(_field(model, name))
    if own:
        return own.replace("None", "`null`")
    if model is DriftConfig:
        first, *others = (f"`{each.value}`" for each in ALLOWED[DriftClass(name)])
        return f"{first} where it is not set; allowed: " + ", ".join((first, *others))
    if model is TableConfig and name in PipelineConfig.model_fields:
        return _meaning(PipelineConfig, name)
    for referred in _referred(_annotation(model, name), model):
        return as_markdown(referred.__doc__ or "").partition("\n")[0]
    return "The kind of this section." if name == "kind" else ""


def _title(model: type[BaseModel] | type[Enum]) -> str:
    return "The file" if model.__name__ == "Config" else model.__name__.removesuffix("Config")


def _referred(annotation: str, model: type) -> Iterator[type[BaseModel] | type[Enum]]:
    """Yield the models and enumerations of Floodmark that an annotation names."""
    for name in re.findall(r"\w+", annotation):
        yield from _classes(getattr(import_module(model.__module__), name, None))


def _classes(named: object) -> Iterator[type[BaseModel] | type[Enum]]:
    """Yield the models and enumerations of a class, or of an alias for several."""
    if isinstance(named, type) and issubclass(named, (BaseModel, Enum)):
        yield named
    for each in get_args(named):
        yield from _classes(each)


def _form(annotation: str, model: type, sections: dict[str, list[str]]) -> str:
    if choice := re.fullmatch(r"Literal\[(.*)\]", annotation):
        return " or ".join(f"`{each.strip()[1:-1]}`" for each in choice[1].split(","))
    if listed := re.fullmatch(r"tuple\[(.*), \.\.\.\]", annotation):
        return f"a list: {_form(listed[1], model, sections)}"
    if mapped := re.fullmatch(r"dict\[(.*?), (.*)\]", annotation):
        return f"a mapping from a name: {_form(mapped[2], model, sections)}"
    referred = list(_referred(annotation, model))
    if referred:
        return " or ".join(f"[{_title(each)}](#{_title(each).lower().replace(' ', '-')})" for each in referred)
    return _FORMS[annotation]


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value = field.default
    if value is None:
        return "`null`"
    if value == ():
        return "none"
    if isinstance(value, BaseModel):
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
