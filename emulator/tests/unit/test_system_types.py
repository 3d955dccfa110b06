"""The cost of a new column type: each record must have its part in every table and coder that is made from the records.

A record for which something is missing fails here under its name and that of the part.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, date, datetime, time
from decimal import Decimal
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest
from sqlglot.expressions import DataType

from sqlserver_emulator.cdc.procedures import reports
from sqlserver_emulator.contract import ProcedureCall
from sqlserver_emulator.engine.connection.reader import fits_arrow
from sqlserver_emulator.engine.session.bulk import stores_as_it_comes
from sqlserver_emulator.engine.translate.lexical.dialect import parse_type
from sqlserver_emulator.engine.translate.values import conversion, type_rules
from sqlserver_emulator.engine.translate.values.data_types import read_data_type
from sqlserver_emulator.engine.translate.values.value import Value
from sqlserver_emulator.engine.type_library import type_script
from sqlserver_emulator.engine.values.convert import convert
from sqlserver_emulator.errors import SqlServerError
from sqlserver_emulator.events import Column
from sqlserver_emulator.syntax.parsing.cursor import Cursor
from sqlserver_emulator.syntax.parsing.data_types import take_type
from sqlserver_emulator.system_types import SYSTEM_TYPES
from sqlserver_emulator.system_types.record import TEMPORAL, Declared, SystemType
from sqlserver_emulator.system_types.sizes import time_bytes
from sqlserver_emulator.system_types.wire import Form, Packing
from sqlserver_emulator.tds import arrow_columns
from sqlserver_emulator.tds.bulk import BulkReader
from sqlserver_emulator.tds.bulk_cells import DONE
from sqlserver_emulator.tds.parameter_values import read_wire_type
from sqlserver_emulator.tds.reading import MessageReader, ProtocolError
from sqlserver_emulator.tds.rows import ROW
from sqlserver_emulator.tds.type_info import encode_type_info
from sqlserver_emulator.tds.values import cell_encoder, null_bytes
from sqlserver_emulator.tsql.catalog.data_types import SP_DATATYPE_INFO
from sqlserver_emulator.tsql.catalog.odbc_types import describe_type
from sqlserver_emulator.tsql.catalog.type_facts import TypeFacts, wire_type
from sqlserver_emulator.types import TsqlType, plain_type

_MOMENT = datetime(2024, 2, 29, 10, 20, 30)
_VALUES: dict[Packing, object] = {
    Packing.BIT: True,
    Packing.INTEGER: 7,
    Packing.FLOAT: 1.5,
    Packing.DECIMAL: Decimal("12.34"),
    Packing.MONEY: Decimal("12.3400"),
    Packing.DATE: date(2024, 2, 29),
    Packing.TIME: time(10, 20, 30),
    Packing.DATE_TIME: _MOMENT,
    Packing.DATE_TIME_OFFSET: _MOMENT.replace(tzinfo=UTC),
    Packing.TICKS: _MOMENT,
    Packing.MINUTES: _MOMENT.replace(second=0),
    Packing.GUID: UUID(int=7),
    Packing.UNICODE: "abcd",
    Packing.CODE_PAGE: "abcd",
    Packing.BYTES: b"abcd",
    Packing.XML: "<a/>",
    Packing.VARIANT: 7,
}
_FACETS: dict[Declared, tuple[str, dict[str, int]]] = {
    Declared.PLAIN: ("", {}),
    Declared.LENGTH: ("(4)", {"length": 4}),
    Declared.PRECISION_SCALE: ("(9,2)", {"precision": 9, "scale": 2}),
    Declared.BITS: ("(53)", {"precision": 53}),
    Declared.SCALE: ("(3)", {"scale": 3}),
}


def _declared(record: SystemType) -> TsqlType:
    if record.declared is Declared.PLAIN:
        return plain_type(record.name)
    return TsqlType(record.name, **_FACETS[record.declared][1])


def _text(record: SystemType) -> str:
    return record.name + _FACETS[record.declared][0]


def _check_declaration(record: SystemType) -> None:
    for name in (record.name, *record.synonyms):
        assert take_type(Cursor(name + _FACETS[record.declared][0])) == _declared(record)


def _check_cast(record: SystemType) -> None:
    node = parse_type(_text(record))
    assert isinstance(node, DataType)
    if record.wire.form is Form.VARIANT:
        with pytest.raises(SqlServerError, match=record.name):
            read_data_type(node, lambda _name: None)
        return
    assert read_data_type(node, lambda _name: None) == _declared(record)


def _check_announcement(record: SystemType) -> None:
    assert encode_type_info(_declared(record))[0] == record.wire.token


def _check_value(record: SystemType) -> None:
    type_ = _declared(record)
    assert cell_encoder(type_)(_VALUES[record.wire.packing]) != null_bytes(type_)


def _check_parameter(record: SystemType) -> None:
    """Check that what is sent is read as the same type, or is refused by name."""
    type_, value = _declared(record), _VALUES[record.wire.packing]
    reader = MessageReader(encode_type_info(type_) + cell_encoder(type_)(value))
    if record.wire.form is Form.VARIANT:
        with pytest.raises(SqlServerError, match=record.name):
            read_wire_type(reader)
        return
    if record.wire.form is Form.LONG:
        return  # The text pointer is in answers only.
    found = read_wire_type(reader)
    assert found.type.name == (record.wire.announced_as or record.name)
    assert found.read_value(reader) == value


def _check_bulk_load(record: SystemType) -> None:
    if record.wire.form is Form.VARIANT or record.wire.announced_as:
        return  # A client cannot announce it.
    type_ = _declared(record)
    table = b"\x01\x00t\x00" if record.wire.form is Form.LONG else b""
    head = b"\x81\x01\x00" + b"\x00" * 6 + encode_type_info(type_) + table + b"\x00"
    row = bytes((ROW,)) + cell_encoder(type_)(_VALUES[record.wire.packing])
    (batch,) = BulkReader(iter([head + row + bytes((DONE,)) + b"\x00" * 12])).batches()
    assert batch.column(0).null_count == 0


def _check_large_result(record: SystemType) -> None:
    """Check that a large result is sent from Arrow, or is kept out of it."""
    if fits_arrow([Column("c", _declared(record))]):
        assert arrow_columns._MAKERS[record.wire.packing](_declared(record))


def _check_variable(record: SystemType) -> None:
    """A value of its own kind stays what it is, but for padding and cutting."""
    assert convert(_VALUES[record.wire.packing], _declared(record)) is not None
    assert convert(None, _declared(record)) is None


def _check_storage(record: SystemType) -> None:
    stored = type_rules.storage_type(_declared(record))
    assert stored
    assert "{" not in stored


def _check_sql_conversion(record: SystemType) -> None:
    """The type's family has a converter: a value of the type itself can be cast to it, or is refused by name."""
    type_ = _declared(record)
    if record.wire.form is Form.VARIANT:
        with pytest.raises(SqlServerError, match=record.name):
            conversion.convert(Value("x", type_), type_, conversion.EXPLICIT)
    else:
        assert conversion.convert(Value("x", type_), type_, conversion.EXPLICIT).type == type_
    assert type_rules.unify(type_, type_) == type_


def _check_assignment(record: SystemType) -> None:
    assert stores_as_it_comes(_declared(record), _declared(record))


def _check_sys_types(record: SystemType) -> None:
    facts = TypeFacts.of(_declared(record))
    assert facts.system_type_id == record.type_id
    assert wire_type(_declared(record))[0] == record.wire.token


def _check_catalog_row(record: SystemType) -> None:
    row = f"('{record.name}', '{record.catalog_name}', {record.type_id}, {record.user_type_id}, "
    assert row in type_script().decode()


def _check_odbc(record: SystemType) -> None:
    name, odbc = describe_type(_declared(record))
    assert (name, odbc.code) == (record.catalog_name, record.odbc.code)


def _check_data_types_procedure(record: SystemType) -> None:
    names = [row[0] for event in _datatype_info() for row in getattr(event, "rows", ())]
    assert record.catalog_name in names


def _datatype_info() -> list[Any]:
    call = SimpleNamespace(arguments={"@data_type": 0, "@odbcver": 3})
    return list(SP_DATATYPE_INFO.run(cast(ProcedureCall, call)))


def _check_captured_column(record: SystemType) -> None:
    type_, facts = _declared(record), TypeFacts.of(_declared(record))
    length, precision, _, scale, digits = reports._facets(
        record.catalog_name, type_.length, type_.precision, type_.scale
    )
    if record.is_number:
        assert (precision, scale or 0) == (facts.precision, facts.scale)
    elif record.family == TEMPORAL:
        assert digits == facts.scale
    else:
        assert (precision, digits) == (None, None)
        assert (length is None) == (type_.length == 0 and not _is_long(record))


def _is_long(record: SystemType) -> bool:
    return record.wire.form in (Form.LONG, Form.XML)


_PARTS: dict[str, Callable[[SystemType], None]] = {
    "declaration (syntax.parsing.data_types)": _check_declaration,
    "type of CAST (engine.translate.values.data_types)": _check_cast,
    "TYPE_INFO (tds.type_info)": _check_announcement,
    "encoder of values (tds.values)": _check_value,
    "decoder of parameters (tds.parameter_values)": _check_parameter,
    "decoder of bulk-loaded cells (tds.bulk_columns)": _check_bulk_load,
    "encoder of large results (tds.arrow_columns)": _check_large_result,
    "conversion of variables (engine.values.convert)": _check_variable,
    "storage type (engine.translate.values.type_rules)": _check_storage,
    "conversion in SQL (engine.translate.values.conversion)": _check_sql_conversion,
    "rule for what a bulk load stores (engine.session.bulk)": _check_assignment,
    "facts of sys.types (tsql.catalog.type_facts)": _check_sys_types,
    "row of sys.types (engine.type_library)": _check_catalog_row,
    "description for ODBC (tsql.catalog.odbc_types)": _check_odbc,
    "row of sp_datatype_info (tsql.catalog.data_types)": _check_data_types_procedure,
    "facets of a captured column (cdc.procedures.reports)": _check_captured_column,
}
_FAILURES = (AssertionError, LookupError, TypeError, AttributeError, ValueError, SqlServerError, ProtocolError)


@pytest.mark.parametrize("part", _PARTS)
@pytest.mark.parametrize("record", SYSTEM_TYPES, ids=lambda record: record.name)
def test_each_type_has_each_part(record: SystemType, part: str) -> None:
    try:
        _PARTS[part](record)
    except _FAILURES as error:
        pytest.fail(f"the type {record.name} has no {part}: {error!r}")


def test_no_two_types_have_the_same_name_number_or_rank() -> None:
    names = [name for record in SYSTEM_TYPES for name in (record.name, *record.synonyms)]
    assert len(names) == len(set(names))
    assert len({record.user_type_id for record in SYSTEM_TYPES}) == len(SYSTEM_TYPES)
    assert len({record.rank for record in SYSTEM_TYPES}) == len(SYSTEM_TYPES)


def test_a_token_of_the_wire_means_one_type() -> None:
    known: dict[tuple[int, int], str] = {}
    for record in SYSTEM_TYPES:
        if record.wire.announced_as:
            continue
        tokens = (record.wire.token, *record.wire.older_tokens)
        sizes = [(token, record.wire.size) for token in tokens]
        sizes += [(record.wire.fixed_token, 0)] if record.wire.fixed_token is not None else []
        for key in sizes:
            assert known.setdefault(key, record.name) == record.name


@pytest.mark.parametrize("record", SYSTEM_TYPES, ids=lambda record: record.name)
def test_what_a_record_says_of_its_declaration_agrees(record: SystemType) -> None:
    assert (record.length is not None) == (record.declared is Declared.LENGTH)
    assert (record.moment is not None) == (record.declared is Declared.SCALE)
    if record.length is not None:
        assert record.facets.max_length == record.length.longest * record.unit_bytes
    if record.moment is not None:
        assert record.facets.max_length == time_bytes(record.facets.scale) + record.moment.more_bytes
        assert record.facets.precision == record.moment.text_width + 1 + record.facets.scale


def test_the_script_of_the_types_has_no_place_left_to_fill_in() -> None:
    assert not re.search(r"(?<!:):[a-z]", type_script().decode())
