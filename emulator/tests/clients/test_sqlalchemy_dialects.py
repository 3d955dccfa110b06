"""SQLAlchemy's dialects mssql+pymssql and mssql+mssqlpython: tables made, filled, read and reflected through them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, datetime
from decimal import Decimal

import pytest
import sqlalchemy as sa
from sqlalchemy.dialects import mssql
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from client_body import DATABASE
from emulator_process import Emulator, trust

METADATA = sa.MetaData()
TEAMS = sa.Table(
    "Teams",
    METADATA,
    sa.Column("Id", sa.Integer, sa.Identity(start=10, increment=5), primary_key=True),
    sa.Column("Name", sa.Unicode(50), nullable=False, unique=True),
)
PEOPLE = sa.Table(
    "People",
    METADATA,
    sa.Column("Id", sa.Integer, primary_key=True),
    sa.Column("Name", sa.Unicode(50), nullable=False),
    sa.Column("Salary", sa.Numeric(18, 2), server_default=sa.text("(100)")),
    sa.Column("Born", sa.Date),
    sa.Column("Seen", sa.DateTime),
    sa.Column("Active", sa.Boolean),
    sa.Column("Photo", sa.LargeBinary),
    sa.Column("Notes", sa.UnicodeText),
    sa.Column("Doubled", sa.Integer, sa.Computed("[Id] * 2")),
    sa.Column("TeamId", sa.Integer, sa.ForeignKey("Teams.Id", name="FK_People_Teams", ondelete="CASCADE")),
    sa.Index("IX_People_Name_Born", "Name", "Born"),
    sa.CheckConstraint("[Salary] >= 0", name="CK_People_Salary"),
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


class Base(DeclarativeBase):
    pass


class Note(Base):
    __tablename__ = "Notes"
    id: Mapped[int] = mapped_column(primary_key=True)
    text: Mapped[str] = mapped_column(sa.Unicode(100))


@pytest.fixture(scope="module", params=["pymssql", "mssqlpython"])
def engine(request: pytest.FixtureRequest, server: Emulator) -> Iterator[sa.Engine]:
    trust(server.ca_file)
    query = {"Encrypt": "yes"} if request.param == "mssqlpython" else {}
    url = sa.URL.create(
        f"mssql+{request.param}", server.user, server.password, server.host, server.port, DATABASE, query
    )
    engine = sa.create_engine(url)
    for metadata in (METADATA, Base.metadata):
        metadata.drop_all(engine)
        metadata.create_all(engine)
    yield engine
    for metadata in (METADATA, Base.metadata):
        metadata.drop_all(engine)
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
    assert dict(row) == {"Id": key[0], **ANNA, "Doubled": 2 * key[0], "TeamId": None}


def test_many_rows_are_written_and_counted(connection: sa.Connection) -> None:
    connection.execute(PEOPLE.insert(), [{"Name": f"n{i}", "Salary": i} for i in range(300)])
    assert connection.scalar(sa.select(sa.func.count()).select_from(PEOPLE)) == 300
    assert connection.scalar(sa.select(sa.func.sum(PEOPLE.c.Salary))) == sum(range(300))


def test_many_rows_written_give_back_their_keys_in_order(connection: sa.Connection) -> None:
    insert = TEAMS.insert().returning(TEAMS.c.Id, TEAMS.c.Name, sort_by_parameter_order=True)
    found = connection.execute(insert, [{"Name": f"t{i}"} for i in range(120)]).all()
    assert [name for _, name in found] == [f"t{i}" for i in range(120)]
    assert len({key for key, _ in found}) == 120


def test_rows_are_read_page_by_page(connection: sa.Connection) -> None:
    connection.execute(PEOPLE.insert(), [{"Name": f"n{i:02}"} for i in range(10)])
    page = sa.select(PEOPLE.c.Name).order_by(PEOPLE.c.Name).offset(4).limit(3)
    assert connection.scalars(page).all() == ["n04", "n05", "n06"]


def test_updates_and_deletes_report_how_many_rows_they_met(connection: sa.Connection) -> None:
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


def test_objects_are_mapped_flushed_and_found(engine: sa.Engine) -> None:
    with Session(engine) as session:
        session.add_all([Note(text=f"note {i}") for i in range(3)])
        session.flush()
        found = session.scalars(sa.select(Note).where(Note.text.like("note%")).order_by(Note.id)).all()
        assert [note.text for note in found] == ["note 0", "note 1", "note 2"]
        found[0].text = "changed"
        session.delete(found[1])
        session.flush()
        assert session.scalar(sa.select(sa.func.count()).select_from(Note)) == 2


@pytest.mark.parametrize("level", ["READ COMMITTED", "SNAPSHOT", "SERIALIZABLE", "AUTOCOMMIT"])
def test_an_isolation_level_may_be_asked_for(engine: sa.Engine, level: str) -> None:
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.exec_driver_sql("ALTER DATABASE CURRENT SET ALLOW_SNAPSHOT_ISOLATION ON")
    with engine.connect().execution_options(isolation_level=level) as connection:
        assert connection.get_isolation_level() == (level if level != "AUTOCOMMIT" else "READ COMMITTED")
        assert connection.scalar(sa.select(sa.func.count()).select_from(PEOPLE)) == 0


def test_a_table_is_reflected_as_it_was_made(engine: sa.Engine) -> None:
    inspector = sa.inspect(engine)
    assert {"People", "Teams"} <= set(inspector.get_table_names())
    columns = {column["name"]: column for column in inspector.get_columns("People")}
    assert list(columns) == [column.name for column in PEOPLE.columns]
    assert columns["Id"]["autoincrement"] is True
    assert [name for name, column in columns.items() if not column["nullable"]] == ["Id", "Name"]
    types = [column["type"].compile(engine.dialect).partition(" COLLATE")[0] for column in columns.values()]
    assert types == [
        "INTEGER",
        "NVARCHAR(50)",
        "NUMERIC(18, 2)",
        "DATE",
        "DATETIME",
        "BIT",
        "VARBINARY(max)",
        "NVARCHAR(max)",
        "INTEGER",
        "INTEGER",
    ]
    assert columns["Salary"]["default"] == "((100))"
    assert columns["Doubled"]["computed"] == {"sqltext": "([Id]*(2))", "persisted": False}


def test_identity_keys_and_constraints_are_reflected(engine: sa.Engine) -> None:
    inspector = sa.inspect(engine)
    identity = inspector.get_columns("Teams")[0]["identity"]
    assert (identity["start"], identity["increment"]) == (10, 5)
    assert inspector.get_pk_constraint("People")["constrained_columns"] == ["Id"]
    [key] = inspector.get_foreign_keys("People")
    assert (
        key["name"],
        key["constrained_columns"],
        key["referred_table"],
        key["referred_columns"],
        key["options"],
    ) == (
        "FK_People_Teams",
        ["TeamId"],
        "Teams",
        ["Id"],
        {"ondelete": "CASCADE"},
    )
    indexes = {index["name"]: index for index in inspector.get_indexes("People")}
    assert indexes["IX_People_Name_Born"]["column_names"] == ["Name", "Born"]
    assert not indexes["IX_People_Name_Born"]["unique"]
    [unique] = inspector.get_indexes("Teams")
    assert (unique["unique"], unique["column_names"]) == (True, ["Name"])


def test_a_whole_database_is_reflected_and_read_through_it(engine: sa.Engine) -> None:
    reflected = sa.MetaData()
    reflected.reflect(engine, only=["People", "Teams"])
    people = reflected.tables["People"]
    assert [key.target_fullname for key in people.c.TeamId.foreign_keys] == ["Teams.Id"]
    with engine.begin() as connection:
        connection.execute(people.insert(), {"Name": "by reflection"})
        assert connection.scalars(sa.select(people.c.Name)).all() == ["by reflection"]
        connection.rollback()


def test_views_schemas_and_temporary_tables_are_seen(engine: sa.Engine) -> None:
    with engine.begin() as connection:
        connection.execute(sa.text("CREATE VIEW dbo.Names AS SELECT Name FROM dbo.People"))
        inspector = sa.inspect(connection)
        assert inspector.get_view_names() == ["Names"]
        assert "SELECT Name FROM dbo.People" in (inspector.get_view_definition("Names") or "")
        assert [column["name"] for column in inspector.get_columns("Names")] == ["Name"]
        assert {"dbo", "sys", "INFORMATION_SCHEMA"} <= set(inspector.get_schema_names())
        connection.execute(sa.text("CREATE TABLE #mine (a int NOT NULL)"))
        assert inspector.has_table("#mine")
        assert not inspector.has_table("NoSuchTable")
        connection.rollback()


def test_every_type_of_the_dialect_is_made_and_reflected(engine: sa.Engine) -> None:
    types = [
        mssql.TINYINT(),
        mssql.SMALLINT(),
        mssql.BIGINT(),
        mssql.BIT(),
        mssql.MONEY(),
        mssql.SMALLMONEY(),
        mssql.REAL(),
        sa.FLOAT(53),
        mssql.DECIMAL(20, 5),
        mssql.DATE(),
        mssql.TIME(),
        mssql.DATETIME2(),
        mssql.DATETIMEOFFSET(),
        mssql.SMALLDATETIME(),
        mssql.CHAR(3),
        mssql.VARCHAR(5),
        mssql.VARCHAR("max"),
        mssql.NCHAR(3),
        mssql.NVARCHAR(5),
        mssql.TEXT(),
        mssql.NTEXT(),
        mssql.BINARY(4),
        mssql.VARBINARY(8),
        mssql.IMAGE(),
        mssql.UNIQUEIDENTIFIER(),
        mssql.XML(),
        mssql.ROWVERSION(),
    ]
    metadata = sa.MetaData()
    table = sa.Table("AllTypes", metadata, *(sa.Column(f"c{i}", type_) for i, type_ in enumerate(types)))
    metadata.create_all(engine)
    try:
        found = [column["type"] for column in sa.inspect(engine).get_columns("AllTypes")]
        compiled = [type_.compile(engine.dialect) for type_ in found]
        expected = [type_.compile(engine.dialect) for type_ in types]
        renamed = {"ROWVERSION": "TIMESTAMP"}
        assert [text.partition(" COLLATE")[0] for text in compiled] == [renamed.get(text, text) for text in expected]
    finally:
        table.drop(engine)
