import pytest

from floodmark.core.errors import ConfigError
from floodmark.core.schema import MAX_LENGTH, SourceColumn, SourceTable, TableName
from floodmark.core.settings import TemporalPolicy
from floodmark.core.types import Kind, WarehouseType, list_losses, warehouse_type

TABLE = SourceTable(TableName("dbo", "T"), (), ())


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (SourceColumn("c", "tinyint", 1), WarehouseType(Kind.INT16)),
        (SourceColumn("c", "decimal", 1, precision=38, scale=10), WarehouseType(Kind.DECIMAL, 38, 10)),
        (SourceColumn("c", "money", 1), WarehouseType(Kind.DECIMAL, 19, 4)),
        (SourceColumn("c", "nvarchar", 1, 50), WarehouseType(Kind.TEXT, length=50)),
        (SourceColumn("c", "nvarchar", 1, MAX_LENGTH), WarehouseType(Kind.TEXT)),
        (SourceColumn("c", "datetime2", 1, scale=6), WarehouseType(Kind.TIMESTAMP)),
        (SourceColumn("c", "rowversion", 1), WarehouseType(Kind.BYTES)),
    ],
)
@pytest.mark.parametrize("policy", TemporalPolicy)
def test_exact_type_is_the_same_under_every_policy(
    column: SourceColumn, expected: WarehouseType, policy: TemporalPolicy
) -> None:
    assert warehouse_type(TABLE, column, policy) == expected


@pytest.mark.parametrize(("type_name", "scale"), [("datetime2", 7), ("time", 7), ("datetimeoffset", 0)])
def test_inexact_moment_is_a_reported_cut_or_exact_text(type_name: str, scale: int) -> None:
    column = SourceColumn("c", type_name, 1, scale=scale)
    assert warehouse_type(TABLE, column, TemporalPolicy.TRUNCATE).loss
    assert warehouse_type(TABLE, column, TemporalPolicy.TEXT) == WarehouseType(Kind.TEXT)


@pytest.mark.parametrize("type_name", ["datetime2", "time", "datetimeoffset"])
@pytest.mark.parametrize("policy", TemporalPolicy)
def test_key_finer_than_a_microsecond_is_exact_text(type_name: str, policy: TemporalPolicy) -> None:
    fine, coarse = SourceColumn("k", type_name, 1, scale=7), SourceColumn("k", type_name, 1, scale=3)
    table = SourceTable(TableName("dbo", "T"), (fine,), ("k",))
    assert warehouse_type(table, fine, policy).kind is Kind.TEXT
    if policy is TemporalPolicy.TRUNCATE:
        assert warehouse_type(table, coarse, policy).kind is not Kind.TEXT


def test_losses_name_column_and_declared_type() -> None:
    table = SourceTable(TableName("dbo", "T"), (SourceColumn("At", "datetime2", 1, scale=7),), ())
    assert list_losses(table, TemporalPolicy.TRUNCATE) == (
        "At datetime2(7): fractions below a microsecond are cut off",
    )
    assert list_losses(table, TemporalPolicy.TEXT) == ()


def test_type_that_is_not_carried_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match=r"dbo\.T: column V has type sql_variant"):
        warehouse_type(TABLE, SourceColumn("V", "sql_variant", 1), TemporalPolicy.TEXT)
