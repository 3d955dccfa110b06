"""The triggers that stamp the rows of a tracked table and write its tombstones, as SQL text.

They run on every connection, also on one that knows nothing of this library, so they use what SQLite 3.26 has and no
function of Python. They take the number of the open transaction, or of the epoch of writes without the library.

A REPLACE removes rows without firing delete triggers (they fire only with recursive_triggers on). So BEFORE triggers
note the rows that conflict with the new one on any unique key, and AFTER triggers write tombstones for those that are
gone. The notes may be too many, never too few: the conflict may end in IGNORE or DO UPDATE, and the row then is still
there.

The stamp is itself an UPDATE. With recursive_triggers on, the update trigger knows it: it is the only one that
changes the row's BSN to the present number.
"""

from dataclasses import dataclass

from compact_tracking.enumerations import TrackingOptions
from compact_tracking.names import (
    CHANGE_BSN,
    CONTEXT,
    INSERT_BSN,
    NOW,
    SYSTEM_COLUMNS,
    list_keys,
    quote_name,
    quote_text,
)
from compact_tracking.structure import Column, Table

NUMBER = "(SELECT coalesce(tx_bsn, epoch_bsn) FROM __ct_state)"
OPEN_EPOCH = "UPDATE __ct_state SET epoch_bsn = next_bsn WHERE tx_bsn IS NULL AND epoch_bsn IS NULL;"


@dataclass(frozen=True)
class TriggerBuilder:
    """The triggers and the index of one tracked table."""

    table_id: int
    """The table's number in ``__ct_tables``."""
    table: Table
    """Its structure."""
    key: tuple[Column, ...]
    """The columns that identify a row."""
    options: TrackingOptions
    """The operations to track."""

    def build(self) -> dict[str, str]:
        """Return the CREATE statement of each trigger and index, by name."""
        parts = {
            "insert": ("AFTER INSERT", "", self._after_insert()),
            "update": ("AFTER UPDATE", self._is_no_stamp(), self._after_update()),
        }
        if self._deletes:
            parts |= {
                "note_insert": ("BEFORE INSERT", "", self._note("")),
                "note_update": ("BEFORE UPDATE", self._unique_key_changes(), self._note("OLD")),
                "delete": ("AFTER DELETE", "", self._after_delete()),
            }
        created = {f"__ct_{self.table_id}_{name}": self._trigger(name, *part) for name, part in parts.items()}
        index = f"__ct_{self.table_id}_changed"
        created[index] = f"CREATE INDEX {index} ON {self._name} ({CHANGE_BSN})"
        return created

    @property
    def _deletes(self) -> bool:
        return TrackingOptions.DELETE in self.options

    @property
    def _name(self) -> str:
        return quote_name(self.table.name)

    @property
    def _stored(self) -> list[str]:
        return list_keys(len(self.key))

    def _key_of(self, row: str) -> list[str]:
        return [f"{row}.{quote_name(column.name)}" for column in self.key]

    def _trigger(self, name: str, event: str, when: str, body: str) -> str:
        condition = f" WHEN {when}" if when else ""
        return f"CREATE TRIGGER __ct_{self.table_id}_{name} {event} ON {self._name}{condition} BEGIN\n{body}\nEND"

    def _is_row(self, row: str) -> str:
        """Return SQL that is true for the row NEW or OLD, in a statement on the table itself."""
        if self.table.rowid:
            return f"{self._name}.{self.table.rowid} = {row}.{self.table.rowid}"
        keys = [quote_name(column.name) for column in self.table.primary_key]
        return " AND ".join(f"{self._name}.{key} = {row}.{key}" for key in keys)

    def _note(self, old: str) -> str:
        """Return statements that note each row in conflict with NEW; ``old`` names the row that is no conflict."""
        columns = ", ".join(["table_id", "insert_bsn", *self._stored])
        values = ", ".join([str(self.table_id), INSERT_BSN, *self._key_of(self._name)])
        other = f" AND NOT ({self._is_row(old)})" if old else ""
        selects = " UNION ".join(
            f"SELECT {values} FROM {self._name} WHERE {' AND '.join(comparisons)}{other}"
            for comparisons in (
                [
                    f"{self._name}.{quote_name(name)} = NEW.{quote_name(name)} COLLATE {quote_name(collation)}"
                    for name, collation in zip(key.columns, key.collations, strict=True)
                ]
                for key in self.table.unique_keys
            )
        )
        return f"{self._forget_notes()}\nINSERT INTO __ct_replaced ({columns}) {selects};"

    def _forget_notes(self) -> str:
        return f"DELETE FROM __ct_replaced WHERE table_id = {self.table_id};"

    def _unique_key_changes(self) -> str:
        names = dict.fromkeys(name for key in self.table.unique_keys for name in key.columns)
        return " OR ".join(f"NEW.{quote_name(n)} COLLATE BINARY IS NOT OLD.{quote_name(n)}" for n in names)

    def _write_replaced(self, moved: str = "1") -> str:
        """Return statements that write the tombstones of noted rows that are gone.

        ``moved`` is true where NEW got its key only now: a noted row with that key then is gone. Otherwise it is NEW
        itself, noted by an INSERT that ended in DO UPDATE.
        """
        pairs = list(zip(self._key_of("r"), self._stored, strict=True))
        taken = " AND ".join(
            f"n.{k} IS {new} COLLATE BINARY" for new, k in zip(self._key_of("NEW"), self._stored, strict=True)
        )
        lives = " AND ".join(f"{r} = n.{k} AND {r} COLLATE BINARY IS n.{k}" for r, k in pairs)
        gone = f"({moved} AND {taken}) OR NOT EXISTS (SELECT 1 FROM {self._name} AS r WHERE {lives})"
        keys = [f"n.{k}" for k in self._stored]
        return (
            f"{self._write_tombstones('n.insert_bsn', keys)}"
            f" FROM __ct_replaced AS n WHERE n.table_id = {self.table_id} AND ({gone});\n{self._forget_notes()}"
        )

    def _write_tombstones(self, insert_bsn: str, keys: list[str]) -> str:
        columns = ", ".join(["table_id", "insert_bsn", "delete_bsn", "context", "deleted_at", *self._stored])
        values = ", ".join([str(self.table_id), insert_bsn, NUMBER, "(SELECT tx_context FROM __ct_state)", NOW, *keys])
        return f"INSERT INTO __ct_tombstones ({columns}) SELECT {values}"

    def _after_insert(self) -> str:
        parts = [self._refuse_nulls(), OPEN_EPOCH]
        if self._deletes:
            parts.append(self._write_replaced())
        if TrackingOptions.INSERT in self.options:
            parts.append(self._stamp(NUMBER))
        return "\n".join(parts)

    def _after_update(self) -> str:
        """Return the statements after an update; one that changes the key is a delete and an insert."""
        same = " AND ".join(
            f"{new} COLLATE BINARY IS {old}" for new, old in zip(self._key_of("NEW"), self._key_of("OLD"), strict=True)
        )
        old_bsn = f"OLD.{INSERT_BSN}"
        parts = [self._refuse_nulls(), OPEN_EPOCH]
        if self._deletes:
            parts.append(self._write_replaced(f"NOT ({same})"))
            parts.append(f"{self._write_tombstones(old_bsn, self._key_of('OLD'))} WHERE NOT ({same});")
        insert_bsn = f"CASE WHEN {same} THEN {old_bsn} ELSE {NUMBER} END"
        if TrackingOptions.UPDATE in self.options:
            parts.append(self._stamp(insert_bsn))
        elif TrackingOptions.INSERT in self.options:
            parts.append(self._stamp(insert_bsn, f" AND NOT ({same})"))
        return "\n".join(parts)

    def _after_delete(self) -> str:
        deleted = " AND ".join(
            f"{k} IS {old} COLLATE BINARY" for k, old in zip(self._stored, self._key_of("OLD"), strict=True)
        )
        return "\n".join(
            [
                OPEN_EPOCH,
                self._write_tombstones(f"OLD.{INSERT_BSN}", self._key_of("OLD")) + ";",
                f"DELETE FROM __ct_replaced WHERE table_id = {self.table_id} AND {deleted};",
            ]
        )

    def _stamp(self, insert_bsn: str, condition: str = "") -> str:
        stamps = {INSERT_BSN: insert_bsn, CHANGE_BSN: NUMBER, CONTEXT: "(SELECT tx_context FROM __ct_state)"}
        assignments = ", ".join(f"{column} = {value}" for column, value in stamps.items())
        differs = " OR ".join(f"{column} IS NOT {value}" for column, value in stamps.items())
        return f"UPDATE {self._name} SET {assignments} WHERE {self._is_row('NEW')} AND ({differs}){condition};"

    def _is_no_stamp(self) -> str:
        number = f"NEW.{CHANGE_BSN}"
        same = " AND ".join(f"NEW.{column} IS OLD.{column}" for column in SYSTEM_COLUMNS)
        return f"{number} IS NULL OR {number} IS NOT {NUMBER} OR ({same})"

    def _refuse_nulls(self) -> str:
        """Return a statement that refuses a NULL in the key, which SQLite allows and a packed key cannot hold."""
        message = quote_text(f"compact_tracking: the key of {self.table.name} must not be NULL")
        nulls = " OR ".join(f"{key} IS NULL" for key in self._key_of("NEW"))
        return f"SELECT RAISE(ABORT, {message}) WHERE {nulls};"
