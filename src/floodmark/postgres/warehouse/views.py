"""The views of targets for readers: they follow their targets, and no relation that Floodmark did not make is touched.

``live_view`` has one view per target, with the rows that are not deleted and without Floodmark's own columns. Whether a
view is Floodmark's is written in its comment: that goes with it when it is renamed or restored from a dump, and
needs no ledger. PostgreSQL lets no column change its type while a view uses it, so the view is dropped before that and
made again in the same transaction, with all that its users may have given it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import psycopg
from psycopg import sql

from floodmark.core.errors import ConfigError, TargetRefusedError
from floodmark.core.naming import history_view_name, live_view_name
from floodmark.core.plan import TablePlan, WindowPlan, is_replay_lane
from floodmark.core.schema import (
    DELETED_COLUMN,
    ENDED_COLUMNS,
    HISTORY_COLUMNS,
    LOAD_COLUMN,
    POSITION_COLUMN,
    TRACKED_COLUMN,
    VALID_TO_COLUMN,
    TableName,
    quote,
    quote_table,
)
from floodmark.postgres.session import open_transaction, query
from floodmark.postgres.sql import read_sql
from floodmark.postgres.warehouse.targets import (
    OWN_TYPES,
    TargetColumn,
    check_shape,
    column_types,
    ensure_target,
    floodmark_columns,
    list_relations,
    read_columns,
)

if TYPE_CHECKING:
    from floodmark.postgres.session import WarehouseConnection

_MARK = "Kept by Floodmark ("
"""The part of a comment by which a view is Floodmark's. Users may add to the comment."""
_LIVE_COMMENT = f"The rows that the source has not deleted. {_MARK}live_view)."
_HISTORY_COMMENT = f"All versions of the rows. {_MARK}style: history)."
_VIEW = "v"
_KINDS = {_VIEW: "a view", "m": "a materialized view", "S": "a sequence", "i": "an index", "c": "a type"}
"""PostgreSQL's kinds of relations in words; all others are tables."""


@dataclass(frozen=True, slots=True)
class Grant:
    """A privilege on a view."""

    grantee: str | None
    """A role; None for PUBLIC."""
    privilege: str
    column: str | None
    """The column that it is about; None for the whole view."""
    grantable: str | None
    """Not None: the role may grant it to others."""


@dataclass(frozen=True, slots=True)
class FoundView:
    """A relation that has the name of the view of a target, or a view of Floodmark's that reads the target."""

    name: TableName
    kind: str
    """The kind of relation, as ``pg_class.relkind`` has it."""
    is_own: bool
    """Whether it is a view that Floodmark made."""
    reads_target: bool
    columns: tuple[tuple[str, str], ...]
    """Name and type of each column, in their order."""
    owner: str
    options: tuple[tuple[str, str], ...]
    comments: tuple[tuple[str, str], ...]
    """Comments by column; "" is the view itself."""
    grants: frozenset[Grant]
    open_end: str | None
    """What the view of a history has as the end of the newest versions, as the arguments of ``make_date``."""

    @property
    def tracks(self) -> str:
        """Return the comment of the column that shows changes of tracked columns; "" where there is none."""
        return dict(self.comments).get(TRACKED_COLUMN, "")


def read_views(session: psycopg.Connection, tables: Sequence[TablePlan]) -> Mapping[TableName, FoundView]:
    """Return what is found of the views of targets. A relation with the view's name comes before one with another."""
    rows = query(
        session,
        "read_views",
        schemas=[table.target.schema for table in tables],
        names=[table.target.name for table in tables],
        views=[view_name(table).name for table in tables],
        mark=_MARK,
    )
    return {
        TableName(row["target_schema"], row["target_name"]): FoundView(
            TableName(row["nspname"], row["relname"]),
            row["relkind"],
            row["is_own"],
            row["reads_target"],
            _pairs(row["columns"]),
            row["owner"],
            _pairs(row["options"]),
            _pairs(row["comments"]),
            frozenset(Grant(*each) for each in row["grants"]),
            row["open_end"],
        )
        for row in rows
    }


def view_name(table: TablePlan) -> TableName:
    """Return the name that the view of a target has, or would have."""
    return history_view_name(table.target) if table.is_history else live_view_name(table.target)


def _pairs(found: Iterable[Sequence[str]]) -> tuple[tuple[str, str], ...]:
    return tuple((first, second) for first, second in found)


# --------------------------------------------------------------------------------------------------------------------


class PostgresTargets:
    """The targets with their views, as previews and the watch for schema drift need them. It holds no session."""

    def __init__(self, connection: WarehouseConnection) -> None:
        self._at = connection

    def check_target(self, plan: TablePlan) -> frozenset[str]:
        """Return the columns of the plan's target, none where the table does not exist yet.

        Raises ConfigError where a window with this plan could not be merged into it, or its view could not be made.
        """
        wanted = column_types(plan)
        with open_transaction(self._at, str(plan.source)) as session:
            found = read_columns(session, list_relations([plan]))
            view = read_views(session, [plan]).get(plan.target)
        for each in (plan, plan.ended_versions) if plan.is_history else (plan,):
            if each.target in found:
                check_shape(each, wanted, found[each.target])
        if plan.settings.live_view or plan.is_history:
            _refuse_other(plan, view)
        return frozenset(found.get(plan.target, {}))


def ensure_with_view(
    session: psycopg.Connection,
    plan: WindowPlan,
    table: TablePlan,
    found: Mapping[TableName, Mapping[str, TargetColumn]],
    view: FoundView | None,
) -> list[str]:
    """Create or change the target as the plan of its table needs it, and its view. Return the changes, for the log.

    found, view: the tables of the target (``list_relations``) and its view as they are. Raises as ``ensure_target``;
    ConfigError where another relation has the name of the view, TargetRefusedError for a view that has to be dropped
    while other objects use it.
    """
    keeper = _ViewKeeper(session, table, view)
    # A replay may be older than the setting: it leaves the view where it is.
    is_wanted = keeper.has_own if is_replay_lane(plan.lane) else table.settings.live_view
    columns = found.get(table.target, {})
    if not (is_wanted or table.is_history):
        return [*keeper.drop(), *ensure_target(session, table, columns, _nothing)]
    _refuse_other(table, view)
    done = ensure_target(session, table, columns, keeper.prepare)
    if table.is_history:
        ended = table.ended_versions
        done += ensure_target(session, ended, found.get(ended.target, {}), keeper.prepare)
    found = read_columns(session, list_relations([table])) if done else found
    return [*done, *keeper.ensure(shared_columns(table, found))]


def shared_columns(
    table: TablePlan, found: Mapping[TableName, Mapping[str, TargetColumn]]
) -> Mapping[str, TargetColumn]:
    """Return the columns of a target; of a history those that the table of the ended versions has as well."""
    columns = found[table.target]
    others = found[table.ended_versions.target] if table.is_history else columns
    return {name: column for name, column in columns.items() if name in others}


def _nothing(_widens: bool) -> None:
    """Do nothing: no view of Floodmark's uses the target."""


def _refuse_other(table: TablePlan, view: FoundView | None) -> None:
    if view is not None and not view.is_own:
        raise _name_taken(table, f"there is {_KINDS.get(view.kind, 'a table')} of this name", view.kind == _VIEW)


def _name_taken(table: TablePlan, problem: str, may_be_ours: bool = False) -> ConfigError:
    name = view_name(table)
    text = _comment_of(table)
    comment = f" If it is Floodmark's and lost its comment: COMMENT ON VIEW {quote_table(name)} IS '{text}';"
    instead = "choose another target for" if table.is_history else "remove live_view from"
    return ConfigError(
        str(table.source),
        f"the view {name} cannot be made: {problem} that Floodmark did not make.",
        f"Rename it or drop it, or {instead} the table.{comment if may_be_ours else ''}",
    )


def _comment_of(table: TablePlan) -> str:
    return _HISTORY_COMMENT if table.is_history else _LIVE_COMMENT


@dataclass
class _ViewKeeper:
    """The view of one target in a transaction."""

    session: psycopg.Connection
    table: TablePlan
    view: FoundView | None
    """The view as it is, or as it was before it was set aside."""
    is_aside: bool = False
    """The view was dropped, and has to be made again."""
    is_locked: bool = False

    @property
    def has_own(self) -> bool:
        return self.view is not None and self.view.is_own

    def drop(self) -> list[str]:
        """Drop Floodmark's view, where there is one. Return what was done."""
        if self.view is None or not self.view.is_own:
            return []
        self._drop(self.view, "cannot be dropped", "or set live_view again")
        return [f"{self.view.name} dropped: the table has no live_view"]

    def prepare(self, widens: bool) -> None:
        """Lock the view before the target is changed, and drop it before a column gets another type.

        Its readers lock the view and then the target: in the other order, each would wait for the other.
        """
        if self.view is None or self.is_aside:
            return
        if not self.is_locked:
            # LOCK TABLE would lock what the view reads as well, and asks its owner for more rights than a view needs.
            self._give_to(self.view, self.view.name)
            self.is_locked = True
        if widens:
            self._set_aside(self.view)

    def _set_aside(self, view: FoundView) -> None:
        """Drop the view. ``ensure`` makes it again as it was."""
        # Of a history, both tables may have other names only when both have been changed.
        if view.reads_target and not self.table.is_history:
            columns = read_columns(self.session, [self.table.target])[self.table.target]
            view = self._with_names(view, _shown(self.table, columns))
        again = "run the pipeline, and create them again; no row is lost meanwhile"
        self._drop(view, f"cannot be made again for the new columns of {self.table.target}", again)
        self.view, self.is_aside = view, True

    def ensure(self, columns: Mapping[str, TargetColumn]) -> list[str]:
        """Make the view, or bring it in step with the columns of the target. Return what was done."""
        shown, before = _shown(self.table, columns), self.view
        if before is not None and not self.is_aside:
            done = self._follow_target(before, shown)
            if done is not None:
                return done
            self._set_aside(before)
        name = view_name(self.table)
        try:
            self._create("CREATE VIEW", shown, self.view.options if self.view else ())
        except (psycopg.errors.DuplicateObject, psycopg.errors.DuplicateTable) as error:
            # A type has no place in pg_class, and another session may be faster.
            raise _name_taken(self.table, "there is a type or relation of this name") from error
        if self.view is None:
            self._comment("", _comment_of(self.table))
            self._comment_tracked(shown)
            return [f"{name} created with {len(shown)} columns"]
        self._give_back(self.view)
        self._comment_tracked(shown)
        return [f"{name} made again with {len(shown)} columns"]

    def _follow_target(self, view: FoundView, shown: Sequence[tuple[str, str]]) -> list[str] | None:
        """Change the view where it is, and return what was done; None where it has to be dropped and made again."""
        done, name = [], view_name(self.table)
        if view.name != name:
            done.append(f"{view.name} renamed to {name}")
            view = self._renamed(view, name)
        if view.reads_target:
            view = self._with_names(view, shown)
        self.view = view
        has_settings = view.open_end == _open_end(self.table) and view.tracks == _tracked_comment(self.table)
        if view.reads_target and view.columns == tuple(shown) and has_settings:
            return done
        if view.columns != tuple(shown[: len(view.columns)]):
            return None
        # It keeps comment, owner, privileges, and what uses it.
        self._create("CREATE OR REPLACE VIEW", shown, view.options)
        self._comment_tracked(shown)
        return [*done, f"{name} follows its table, with {len(shown)} columns now"]

    def _renamed(self, view: FoundView, new: TableName) -> FoundView:
        old = view.name
        if old.schema != new.schema:
            self.session.execute(f"ALTER VIEW {quote_table(old)} SET SCHEMA {quote(new.schema)}")
        if old.name != new.name:
            moved = replace(old, schema=new.schema)
            self.session.execute(f"ALTER VIEW {quote_table(moved)} RENAME TO {quote(new.name)}")
        return replace(view, name=new)

    def _with_names(self, view: FoundView, shown: Sequence[tuple[str, str]]) -> FoundView:
        """Give the columns of the view the names that those of the target have got. Their order is the same."""
        wanted, has = [name for name, _ in shown], [name for name, _ in view.columns]
        before = [*has]
        # A column may have to give up its name before another one gets it.
        while free := [(old, new) for old, new in zip(has, wanted, strict=False) if old != new and new not in has]:
            old, new = free[0]
            self.session.execute(f"ALTER VIEW {quote_table(view.name)} RENAME COLUMN {quote(old)} TO {quote(new)}")
            has[has.index(old)] = new
        return view if has == before else read_views(self.session, [self.table])[self.table.target]

    def _create(self, create: str, shown: Sequence[tuple[str, str]], options: Sequence[tuple[str, str]]) -> None:
        given = ", ".join(f"{quote(option)} = {self._literal(value)}" for option, value in options)
        columns = ", ".join(quote(column) for column, _ in shown)
        view = f"{create} {quote_table(view_name(self.table))} ({columns}){f' WITH ({given})' if given else ''}"
        target = quote_table(self.table.target)
        select = f"SELECT {columns} FROM {target} WHERE NOT {quote(DELETED_COLUMN)}"  # noqa: S608  (quoted)
        if self.table.is_history:
            ends = {name: f"NULL::{OWN_TYPES[name]}" for name in ENDED_COLUMNS}
            if open_end := _open_end(self.table):
                # Of numbers: the server would print a moment in the time zone of the session that reads the definition.
                ends[VALID_TO_COLUMN] = f"make_date({open_end})::timestamp AT TIME ZONE 'UTC'"
            ended = quote_table(self.table.ended_versions.target)
            tracked = {TRACKED_COLUMN: _tracked(self.table, [name for name, _ in shown])}
            newest, older = (
                ", ".join(given.get(name, quote(name)) for name, _ in shown) for given in (ends | tracked, tracked)
            )
            select = f"SELECT {newest} FROM {target} AS version\nUNION ALL\nSELECT {older} FROM {ended} AS version"  # noqa: S608
        self.session.execute(f"{view} AS\n{select}")

    def _comment_tracked(self, shown: Iterable[tuple[str, str]]) -> None:
        if TRACKED_COLUMN in dict(shown):
            self._comment(TRACKED_COLUMN, _tracked_comment(self.table))

    def _comment(self, column: str, comment: str) -> None:
        name = quote_table(view_name(self.table))
        place = f"COLUMN {name}.{quote(column)}" if column else f"VIEW {name}"
        self.session.execute(f"COMMENT ON {place} IS {self._literal(comment)}")

    def _give_back(self, view: FoundView) -> None:
        """Give a view that was made again the comments, the owner and the privileges that it had."""
        made = read_views(self.session, [self.table])[self.table.target]
        columns = {name for name, _ in made.columns}
        for column, comment in view.comments:
            if not column or column in columns:
                self._comment(column, comment)
        if view.owner != made.owner:
            self._give_to(view, made.name)
            made = read_views(self.session, [self.table])[self.table.target]
        wanted = frozenset(each for each in view.grants if each.column is None or each.column in columns)
        if made.grants != wanted:
            self._grant(made, wanted)

    def _give_to(self, view: FoundView, name: TableName) -> None:
        """Give the view of this name its owner. Raises TargetRefusedError where the user may not."""
        try:
            self.session.execute(f"ALTER VIEW {quote_table(name)} OWNER TO {quote(view.owner)}")
        except psycopg.errors.InsufficientPrivilege as error:
            raise TargetRefusedError(
                str(self.table.source),
                f"the view {view.name} has to follow the columns of {self.table.target}, and may not be changed or "
                f"made again for its owner {view.owner}.",
                f"ALTER VIEW {quote_table(view.name)} OWNER TO the user of the warehouse connection. Or make that user "
                f"a member of {view.owner}, which needs CREATE on the schema.",
            ) from error

    def _grant(self, made: FoundView, wanted: Iterable[Grant]) -> None:
        """Replace the privileges of a new view, which are those that the database gives to every new one."""
        name = quote_table(made.name)
        for role in sorted({_role(each) for each in made.grants}):
            self.session.execute(f"REVOKE ALL ON {name} FROM {role}")
        for each in wanted:
            what = f"{each.privilege} ({quote(each.column)})" if each.column else each.privilege
            more = " WITH GRANT OPTION" if each.grantable else ""
            self.session.execute(f"GRANT {what} ON {name} TO {_role(each)}{more}")

    def _drop(self, view: FoundView, problem: str, then: str) -> None:
        """Drop a view. Raises TargetRefusedError with the names of those that use it."""
        named = {"schema": view.name.schema, "name": view.name.name}
        if users := [user for (user,) in self.session.execute(read_sql("list_users_of_view"), named).fetchall()]:
            raise TargetRefusedError(
                str(self.table.source),
                f"the view {view.name} {problem}: other objects use it: {', '.join(users)}.",
                f"Drop them, {then}.",
            )
        self.session.execute(f"DROP VIEW {quote_table(view.name)}")

    def _literal(self, text: str) -> str:
        return sql.Literal(text).as_string(self.session)


def _shown(table: TablePlan, columns: Mapping[str, TargetColumn]) -> list[tuple[str, str]]:
    """Return the columns of a view, with their types: those of the target but Floodmark's own, or for a history all.

    Those that only ended versions have follow Floodmark's own: columns that are added come last.
    """
    shown = [(name, column.type_name) for name, column in columns.items()]
    if not table.is_history:
        return [each for each in shown if each[0] not in floodmark_columns(table)]
    place = 1 + max(index for index, (name, _) in enumerate(shown) if name in HISTORY_COLUMNS)
    own = [(name, OWN_TYPES[name]) for name in ENDED_COLUMNS]
    if table.settings.track:
        own.append((TRACKED_COLUMN, "boolean"))
    return [*shown[:place], *own, *shown[place:]]


def _open_end(table: TablePlan) -> str | None:
    """Return the end that the newest versions have in the view of a table, as the arguments of ``make_date``."""
    day = table.settings.open_end if table.is_history else None
    return f"{day.year}, {day.month}, {day.day}" if day else None


def _tracked(table: TablePlan, shown: Collection[str]) -> str:
    """Return the SQL of whether a version differs from the one before it in a tracked column, or in being deleted.

    The first version of a key does. The primary key of the ended versions finds the one before.
    """
    order = (LOAD_COLUMN, POSITION_COLUMN)
    version, previous = (
        {name: f"{alias}.{quote(name)}" for name in (*shown, *order)} for alias in ("version", "previous")
    )
    compared = (name for name in (DELETED_COLUMN, *_tracked_names(table)) if name in shown)
    differs = " OR ".join(f"{previous[name]} IS DISTINCT FROM {version[name]}" for name in compared)
    same_key = " AND ".join(f"{previous[name]} = {version[name]}" for name in table.in_target.key)
    at, before = (", ".join(names[name] for name in order) for names in (version, previous))
    newest_first = ", ".join(f"{previous[name]} DESC" for name in order)
    return (
        f"coalesce((SELECT {differs} FROM {quote_table(table.ended_versions.target)} AS previous"  # noqa: S608  (quoted)
        f" WHERE {same_key} AND ({before}) < ({at}) ORDER BY {newest_first} LIMIT 1), true)"
    )


def _tracked_names(table: TablePlan) -> list[str]:
    """Return the tracked columns by their names in the target."""
    return [table.target_names.get(name, name) for name in table.settings.track]


def _tracked_comment(table: TablePlan) -> str:
    """Return the comment of the column of the view, by which a view with other tracked columns is recognised."""
    if not table.is_history or not table.settings.track:
        return ""
    return f"Whether the version before had another {', '.join(_tracked_names(table))}, or there was no row (track)."


def _role(grant: Grant) -> str:
    return quote(grant.grantee) if grant.grantee is not None else "PUBLIC"
