"""A window's plan as JSON: how the ledger keeps it, so that any later run, on any machine, finishes the same window.

The form follows the fields of the dataclasses: a new field needs nothing here. It is stable: fields are only added,
with a default for plans written before. ``window_id``, ``attempt``, ``lane`` and the like are columns of the ledger
too; the ledger's columns win.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from datetime import date, datetime
from enum import Enum
from functools import cache, partial
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

from floodmark.core.plan import WindowPlan
from floodmark.core.position import Interval, Position, parse_position
from floodmark.core.schema import TableName
from floodmark.core.settings import FirstLoad, TableSettings
from floodmark.core.snapshot import FeedIdentity, MemberMark

FORMAT = 1


def plan_to_json(plan: WindowPlan) -> dict[str, Any]:
    """Nothing but dicts, lists, strings, numbers, booleans and None."""
    return {"format": FORMAT, **_write(WindowPlan, plan)}


def plan_from_json(document: Mapping[str, Any]) -> WindowPlan:
    """Raises ValueError for a plan of a later format, KeyError for one that is not a plan."""
    if document["format"] > FORMAT:
        raise ValueError(f"the plan has format {document['format']}, this Floodmark knows {FORMAT}: upgrade it")
    plan: WindowPlan = _read(WindowPlan, document)
    return plan


# --------------------------------------------------------------------------------------------------------------------
# The stored form of a value, from its type.


@dataclass(frozen=True, slots=True)
class _Form:
    write: Callable[[Any], Any]
    read: Callable[[Any], Any]


_AS_IS = _Form(lambda value: value, lambda value: value)
_FORMS = {
    **dict.fromkeys((str, int, bool), _AS_IS),
    Position: _Form(str, parse_position),
    datetime: _Form(datetime.isoformat, datetime.fromisoformat),
    date: _Form(date.isoformat, date.fromisoformat),
    bytes: _Form(bytes.hex, bytes.fromhex),
    # Not "schema.name": a name may hold a dot.
    TableName: _Form(lambda name: [name.schema, name.name], lambda parts: TableName(*parts)),
    MemberMark: _Form(lambda end: [end.member, end.mark], lambda parts: MemberMark(*parts)),
}
_FLAT: Mapping[Any, str] = {TableSettings: "", FirstLoad: "first_load_", Interval: "", FeedIdentity: ""}
"""The types whose fields are stored among those of what has them, with a prefix."""
_NAMES = {
    "feed": "instance",
    "start": "start_lsn",
    "lob_batch": "lob_batch_bytes",
    "after": "after_lsn",
    "to": "to_lsn",
    "to_at": "to_lsn_at",
}
"""The stored names of fields, where they differ."""
_NAMES_OF: Mapping[Any, Mapping[str, str]] = {TableSettings: {"columns": "column_settings", "where": "filter"}}
"""The stored names of fields that are stored among those of a type with a field of the same name."""
_NOT_STORED = frozenset({"marks", "has_ended"})
_DEFAULTS: Mapping[str, Callable[[Mapping[str, Any]], Any]] = {
    # A plan of an earlier version has members only where its rows name them.
    "has_members": lambda document: bool(document.get("member_column")),
}
"""The defaults for plans written before, where they differ from those of the fields."""


@dataclass(frozen=True, slots=True)
class _Field:
    """A field of a dataclass with its stored name; ``flat``: its type, where that is one of ``_FLAT``."""

    name: str
    key: str
    form: _Form
    flat: type | None
    is_optional: bool
    is_required: bool


@cache
def _form(kind: Any) -> _Form:
    """Return the form of a type. Raises TypeError for one that no field of a plan had before."""
    if kind in _FORMS:
        return _FORMS[kind]
    if isinstance(kind, UnionType):
        form = _form(_without_none(kind))
        return _Form(*(partial(_unless_none, convert) for convert in (form.write, form.read)))
    if get_origin(kind) is tuple:
        return _tuple_form(*get_args(kind))
    if isinstance(kind, type) and issubclass(kind, Enum):
        return _Form(lambda value: value.value, kind)
    if isinstance(kind, type) and is_dataclass(kind):
        return _Form(partial(_write, kind), partial(_read, kind))
    raise TypeError(f"a plan cannot keep a value of type {kind}")


def _tuple_form(*items: Any) -> _Form:
    if items[-1] is Ellipsis:
        form = _form(items[0])
        return _Form(lambda values: list(map(form.write, values)), lambda values: tuple(map(form.read, values)))
    forms = list(map(_form, items))
    return _Form(
        lambda values: [form.write(value) for form, value in zip(forms, values, strict=True)],
        lambda values: tuple(form.read(value) for form, value in zip(forms, values, strict=True)),
    )


def _unless_none(convert: Callable[[Any], Any], value: Any) -> Any:
    return None if value is None else convert(value)


def _without_none(kind: Any) -> Any:
    """Return X of ``X | None``, and any other type as it is."""
    return next(each for each in get_args(kind) if each is not NoneType) if isinstance(kind, UnionType) else kind


@cache
def _fields(kind: Any) -> tuple[_Field, ...]:
    """Return the stored fields of a dataclass."""
    hints = get_type_hints(kind)
    found = []
    for field in fields(kind):
        if field.name not in _NOT_STORED:
            hint = hints[field.name]
            flat = _without_none(hint)
            found.append(
                _Field(
                    name=field.name,
                    key=_FLAT.get(kind, "") + {**_NAMES, **_NAMES_OF.get(kind, {})}.get(field.name, field.name),
                    form=_form(hint),
                    flat=flat if flat in _FLAT else None,
                    is_optional=flat is not hint,
                    is_required=field.default is MISSING and field.default_factory is MISSING,
                )
            )
    return tuple(found)


def _write(kind: type, value: Any) -> dict[str, Any]:
    """Return the document of a dataclass; for None, one with None for each field."""
    document: dict[str, Any] = {}
    for field in _fields(kind):
        found = None if value is None else getattr(value, field.name)
        if field.flat is not None:
            document |= _write(field.flat, found)
        else:
            document[field.key] = None if value is None else field.form.write(found)
    return document


def _read(kind: Any, document: Mapping[str, Any]) -> Any:
    values = {}
    for field in _fields(kind):
        if field.flat is not None:
            is_none = field.is_optional and document[_fields(field.flat)[0].key] is None
            values[field.name] = None if is_none else _read(field.flat, document)
        elif field.key in document:
            values[field.name] = field.form.read(document[field.key])
        elif field.key in _DEFAULTS:
            values[field.name] = _DEFAULTS[field.key](document)
        elif field.is_required:
            raise KeyError(field.key)
    return kind(**values)
