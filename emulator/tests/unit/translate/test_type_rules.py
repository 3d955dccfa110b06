from __future__ import annotations

import pytest

from sqlserver_emulator.engine.translate.values import type_rules
from sqlserver_emulator.types import TsqlType
from translate_catalog import tsql_type


@pytest.mark.parametrize(
    ("left", "operator", "right", "result"),
    [
        ("int", "/", "int", "int"),
        ("smallint", "+", "bigint", "bigint"),
        ("decimal(10,2)", "+", "decimal(5,4)", "decimal(13,4)"),
        ("decimal(10,2)", "*", "decimal(5,4)", "decimal(16,6)"),
        ("decimal(10,2)", "/", "decimal(5,4)", "decimal(20,8)"),
        ("decimal(38,10)", "*", "decimal(38,10)", "decimal(38,6)"),
        ("int", "*", "decimal(10,2)", "decimal(21,2)"),
        ("money", "/", "int", "money"),
        ("decimal(10,2)", "+", "float", "float"),
    ],
)
def test_arithmetic_has_the_documented_type(left: str, operator: str, right: str, result: str) -> None:
    found = type_rules.arithmetic(operator, tsql_type(left), tsql_type(right))
    assert str(found) == result


@pytest.mark.parametrize(
    ("left", "right", "result"),
    [
        ("varchar(5)", "nvarchar(3)", "nvarchar(5)"),
        ("char(3)", "char(5)", "char(5)"),
        ("char(3)", "varchar(2)", "varchar(3)"),
        ("varchar(10)", "varchar(max)", "varchar(max)"),
        ("int", "decimal(5,2)", "decimal(12,2)"),
        ("int", "varchar(5)", "int"),
        ("date", "datetime2(3)", "datetime2(3)"),
        ("datetime", "datetimeoffset(0)", "datetimeoffset(3)"),
        ("uniqueidentifier", "varchar(40)", "uniqueidentifier"),
        ("binary(4)", "varbinary(8)", "varbinary(8)"),
    ],
)
def test_unify_gives_the_type_of_a_case(left: str, right: str, result: str) -> None:
    assert str(type_rules.unify(tsql_type(left), tsql_type(right))) == result


@pytest.mark.parametrize(
    ("type", "stored"),
    [
        ("nvarchar(20)", "varchar(20)"),
        ("nvarchar(max)", "text"),
        ("char(5)", "char(5)"),
        ("money", "numeric(19,4)"),
        ("decimal(9,3)", "numeric(9,3)"),
        ("datetime2(7)", "tsql.datetime2"),
        ("datetime2(6)", "timestamp(6)"),
        ("time(7)", "tsql.time"),
        ("datetime2(3)", "timestamp(3)"),
        ("datetime", "timestamp(3)"),
        ("bit", "smallint"),
        ("tinyint", "smallint"),
        ("rowversion", "bytea"),
        ("datetimeoffset(7)", "tsql.datetimeoffset"),
    ],
)
def test_storage_type_is_where_a_type_is_kept(type: str, stored: str) -> None:
    assert type_rules.storage_type(tsql_type(type)) == stored


def test_concatenation_of_strings_adds_their_lengths() -> None:
    assert str(type_rules.concatenated(tsql_type("varchar(5)"), tsql_type("nvarchar(3)"))) == "nvarchar(8)"
    assert str(type_rules.concatenated(tsql_type("varchar(8000)"), tsql_type("varchar(3)"))) == "varchar(8000)"
    assert str(type_rules.concatenated(tsql_type("varchar(max)"), tsql_type("varchar(3)"))) == "varchar(max)"


@pytest.mark.parametrize(
    ("type", "sum_type", "average_type"),
    [
        ("smallint", "int", "int"),
        ("bigint", "bigint", "bigint"),
        ("decimal(9,3)", "decimal(38,3)", "decimal(38,6)"),
        ("smallmoney", "money", "money"),
        ("real", "float", "float"),
    ],
)
def test_aggregates_widen_as_documented(type: str, sum_type: str, average_type: str) -> None:
    declared: TsqlType = tsql_type(type)
    assert str(type_rules.summed(declared)) == sum_type
    assert str(type_rules.averaged(declared)) == average_type
