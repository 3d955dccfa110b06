"""SQLAlchemy's mssql+pymssql dialect on the emulator: tables made, filled, read and reflected through it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, datetime
from decimal import Decimal

import pytest
import sqlalchemy as sa

from emulator_process import Emulator

METADATA = sa.MetaData()
PEOPLE = sa.Table(
    "People",
    METADATA,
    sa.Column("Id", sa.Integer, primary_key=True),
    sa.Column("Name", sa.Unicode(50), nullable=False),
    sa.Column("Salary", sa.Numeric(18, 2)),
    sa.Column("Born", sa.Date),
    sa.Column("Seen", sa.DateTime),
    sa.Column("Active", sa.Boolean),
    sa.Column("Photo", sa.LargeBinary),
    sa.Column("Notes", sa.UnicodeText),
)
ANNA = {
    "Name": "Änna 🌊",
    "Salary": Decimal("1234.50"),
    "Born": date(1990, 2, 28),
    "Seen": datetime(2024, 1, 2, 3, 4, 5),
    "Active": True,
    "Photo": b"\x00\x01\xff",
    "Notes": "x" * 5000,
}


@pytest.fixture(scope="module")
def engine(emulator: Emulator) -> Iterator[sa.Engine]:
    url = sa.URL.create("mssql+pymssql", emulator.user, emulator.password, emulator.host, emulator.port, "Test")
    engine = sa.create_engine(url)
    METADATA.drop_all(engine)
    METADATA.create_all(engine)
    yield engine
    METADATA.drop_all(engine)
    engine.dispose()


@pytest.fixture
def connection(engine: sa.Engine) -> Iterator[sa.Connection]:
    with engine.connect() as connection:
        yield connection
        connection.rollback()


def test_a_row_written_comes_back_with_its_generated_key(connection: sa.Connection) -> None:
    key = connection.execute(PEOPLE.insert(), ANNA).inserted_primary_key
    assert key is not None
    row = connection.execute(PEOPLE.select().where(PEOPLE.c.Id == key[0])).mappings().one()
    assert dict(row) == {"Id": key[0], **ANNA}


def test_many_rows_are_written_and_counted(connection: sa.Connection) -> None:
    connection.execute(PEOPLE.insert(), [{"Name": f"n{i}", "Salary": i} for i in range(300)])
    assert connection.scalar(sa.select(sa.func.count()).select_from(PEOPLE)) == 300
    assert connection.scalar(sa.select(sa.func.sum(PEOPLE.c.Salary))) == sum(range(300))


def test_rows_are_read_page_by_page(connection: sa.Connection) -> None:
    connection.execute(PEOPLE.insert(), [{"Name": f"n{i:02}"} for i in range(10)])
    page = sa.select(PEOPLE.c.Name).order_by(PEOPLE.c.Name).offset(4).limit(3)
    assert connection.scalars(page).all() == ["n04", "n05", "n06"]


def test_updates_and_deletes_tell_how_many_rows_they_met(connection: sa.Connection) -> None:
    connection.execute(PEOPLE.insert(), [{"Name": "a"}, {"Name": "b"}])
    assert connection.execute(PEOPLE.update().values(Active=False)).rowcount == 2
    assert connection.execute(PEOPLE.delete().where(PEOPLE.c.Name == "a")).rowcount == 1


def test_a_rollback_undoes_and_a_savepoint_undoes_a_part(engine: sa.Engine) -> None:
    with engine.begin() as connection:
        connection.execute(PEOPLE.insert(), {"Name": "outer"})
        with pytest.raises(sa.exc.IntegrityError), connection.begin_nested():
            connection.execute(sa.text("INSERT INTO People (Name) VALUES (NULL)"))
        assert connection.scalar(sa.select(sa.func.count()).select_from(PEOPLE)) == 1
        connection.rollback()
    with engine.connect() as connection:
        assert connection.scalar(sa.select(sa.func.count()).select_from(PEOPLE)) == 0


def test_a_table_is_reflected_as_it_was_made(engine: sa.Engine) -> None:
    inspector = sa.inspect(engine)
    assert "People" in inspector.get_table_names()
    columns = {column["name"]: column for column in inspector.get_columns("People")}
    assert list(columns) == [column.name for column in PEOPLE.columns]
    assert columns["Id"]["autoincrement"] is True
    assert [name for name, column in columns.items() if not column["nullable"]] == ["Id", "Name"]
    assert (columns["Salary"]["type"].precision, columns["Salary"]["type"].scale) == (18, 2)
    assert columns["Name"]["type"].length == 50
    assert inspector.get_pk_constraint("People")["constrained_columns"] == ["Id"]
