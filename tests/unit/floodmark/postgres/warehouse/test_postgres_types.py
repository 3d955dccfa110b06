import pytest
from hypothesis import given
from hypothesis import strategies as st

from floodmark.core.types import Kind, WarehouseType
from floodmark.postgres.warehouse.targets import postgres_type, type_holds


@pytest.mark.parametrize(
    ("wide", "narrow"),
    [
        ("bigint", "integer"),
        ("integer", "smallint"),
        ("text", "character varying(5)"),
        ("character varying(9)", "character varying(5)"),
        ("double precision", "real"),
        ("numeric(20,4)", "numeric(18,2)"),
        ("numeric", "numeric(38,10)"),
        ("numeric(19,0)", "bigint"),
        ("numeric(12,2)", "integer"),
        ("timestamp without time zone", "timestamp(6) without time zone"),
        ("timestamp with time zone", "timestamp(6) with time zone"),
    ],
)
def test_wider_type_holds_the_narrower_and_not_the_other_way(wide: str, narrow: str) -> None:
    assert type_holds(wide, narrow)
    assert not type_holds(narrow, wide) or wide.startswith("timestamp")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("numeric(18,2)", "numeric(18,4)"),
        ("numeric(9,0)", "integer"),
        ("text", "integer"),
        ("bytea", "text"),
        ("date", "timestamp(6) without time zone"),
        ("double precision", "numeric(5,2)"),
        ("bigint", "numeric(5,0)"),
        ("timestamp(6) with time zone", "timestamp(6) without time zone"),
        ("timestamp(3) without time zone", "timestamp(6) without time zone"),
    ],
)
def test_type_that_could_lose_a_value_does_not_hold_it(one: str, other: str) -> None:
    assert not type_holds(one, other)


@given(st.sampled_from(Kind), st.integers(1, 38), st.integers(0, 9), st.integers(0, 4000))
def test_every_type_holds_itself(kind: Kind, precision: int, scale: int, length: int) -> None:
    name = postgres_type(WarehouseType(kind, precision, min(scale, precision), length))
    assert type_holds(name, name)
