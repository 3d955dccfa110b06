"""Derived columns of targets: PostgreSQL computes them from the other columns of the row, and no merge writes them.

A derived column is Floodmark's by its comment, which has its expression as the configuration had it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import psycopg
from psycopg import sql

from floodmark.core.errors import ConfigError, TargetRefusedError
from floodmark.core.plan import TablePlan
from floodmark.core.schema import quote, quote_table
from floodmark.core.settings import DerivedColumn
from floodmark.postgres.sql import read_sql

_COMMENT = "Derived: "


@dataclass
class DerivedColumns:
    """The derived columns of one target, in the transaction that changes it."""

    session: psycopg.Connection
    table: TablePlan
    found: dict[str, str] = field(default_factory=dict)
    """The expressions of those that the target has, by name."""

    @classmethod
    def of(cls, session: psycopg.Connection, table: TablePlan, columns: Mapping[str, object]) -> DerivedColumns:
        """Return those of a target. Raises ConfigError for a column that has a name of one, and is none.

        columns: those that the target has; none where it does not exist.
        """
        taken = {column.name for column in table.in_target.stored_columns}
        wanted = [each.name for each in table.settings.derived]
        if clash := [name for name in wanted if name in taken]:
            raise _refused(table, clash[0], "the source has a column of this name, give one of the two another (as)")
        if not columns or not wanted:
            return cls(session, table)
        named = {"target": quote_table(table.target), "names": wanted}
        found = {}
        for name, is_derived, comment in session.execute(read_sql("list_derived"), named).fetchall():
            if not is_derived or not comment.startswith(_COMMENT):
                raise _refused(table, name, f"{table.target} has a column of this name that Floodmark did not make")
            found[name] = comment.removeprefix(_COMMENT)
        return cls(session, table, found)

    def drop(self, names: tuple[str, ...] = ()) -> None:
        """Drop columns, all where none is named: PostgreSQL changes no type of a column that one uses.

        ``ensure`` makes them again. Raises TargetRefusedError where other objects use one.
        """
        for name in names or tuple(self.found):
            named = {"target": quote_table(self.table.target), "column": name}
            if users := [user for (user,) in self.session.execute(read_sql("list_users_of_column"), named).fetchall()]:
                raise TargetRefusedError(
                    str(self.table.source),
                    f"derived column {name} of {self.table.target} has to be made again, and others use it: "
                    f"{', '.join(users)}.",
                    "Drop them, run the pipeline, and create them again; no row is lost meanwhile.",
                )
            self.session.execute(f"ALTER TABLE {quote_table(self.table.target)} DROP COLUMN {quote(name)}")
            del self.found[name]

    def ensure(self, before_change: Callable[[bool], None]) -> list[str]:
        """Make those that are missing, and those with another expression. Return the changes, for the log."""
        done = []
        for each in self.table.settings.derived:
            if self.found.get(each.name) == each.sql:
                continue
            before_change(each.name in self.found)
            if each.name in self.found:
                self.drop((each.name,))
            with _explained(self.table, each.name):
                done.append(f"{self.table.target}: derived column {each.name} {self._add(each)} added")
        return done

    def _add(self, derived: DerivedColumn) -> str:
        """Add a column. Return its type."""
        # sqlglot is no package of executors, which import this module for the types of targets.
        from floodmark.sync.rules import DIALECT, EXPRESSION, bind_rule  # noqa: PLC0415

        target, name = quote_table(self.table.target), quote(derived.name)
        columns = [column.name for column in self.table.in_target.stored_columns]
        expression = bind_rule(derived.sql, columns, EXPRESSION).sql(dialect=DIALECT)
        asked = self.session.execute(f"SELECT ({expression}) FROM {target} LIMIT 0")  # noqa: S608  (parsed)
        assert asked.description is not None  # noqa: S101  (a SELECT has columns)
        # Without a length, which would cut: -1 is that of no declaration.
        kind = self.session.execute("SELECT format_type(%s, -1)", [asked.description[0].type_code]).fetchone()
        type_name = str(kind[0]) if kind else ""
        self.session.execute(
            f"ALTER TABLE {target} ADD COLUMN {name} {type_name} GENERATED ALWAYS AS ({expression}) STORED"
        )
        text = sql.Literal(_COMMENT + derived.sql).as_string(self.session)
        self.session.execute(f"COMMENT ON COLUMN {target}.{name} IS {text}")
        return type_name


@contextmanager
def _explained(table: TablePlan, name: str) -> Iterator[None]:
    """Raise an error about an expression as ConfigError. That of a value may have the value, and is left out."""
    try:
        yield
    except ValueError as error:
        raise _refused(table, name, str(error)) from None
    except psycopg.DataError as error:
        raise _refused(table, name, f"it cannot be computed for a row (SQLSTATE {error.sqlstate})") from None
    except (psycopg.ProgrammingError, psycopg.NotSupportedError) as error:
        raise _refused(table, name, str(error.diag.message_primary)) from None


def _refused(table: TablePlan, name: str, why: str) -> ConfigError:
    return ConfigError(str(table.source), f"derived: {name}: {why}.", "Correct the table in pipelines.yaml.")
