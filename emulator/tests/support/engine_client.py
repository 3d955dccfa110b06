"""A session of the engine that gives results instead of events."""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa

from sqlserver_emulator.errors import SqlServerError
from sqlserver_emulator.events import Column, ErrorRaised, Info, ResultStart, Rows, RowsArrow, StatementDone
from sqlserver_emulator.session import Session
from sqlserver_emulator.types import TsqlType

SA_PASSWORD = "Str0ng!Passw0rd"


@dataclass
class Result:
    columns: tuple[Column, ...]
    rows: list[tuple[object, ...]] = field(default_factory=list)
    arrow_batches: int = 0

    @property
    def types(self) -> dict[str, TsqlType]:
        return {column.name: column.type for column in self.columns}


@dataclass
class Outcome:
    """The results, counts and errors that a batch produced."""

    results: list[Result] = field(default_factory=list)
    counts: list[int | None] = field(default_factory=list)
    errors: list[SqlServerError] = field(default_factory=list)
    messages: list[str] = field(default_factory=list)


class Client:
    def __init__(self, session: Session) -> None:
        self.session = session

    def run(self, batch: str) -> Outcome:
        """Run a batch that must succeed."""
        outcome = self.attempt(batch)
        assert not outcome.errors, outcome.errors
        return outcome

    def attempt(self, batch: str) -> Outcome:
        outcome = Outcome()
        for event in self.session.run_batch(batch):
            match event:
                case ResultStart(columns):
                    outcome.results.append(Result(columns))
                case Rows(rows):
                    outcome.results[-1].rows += rows
                case RowsArrow():
                    batch_: pa.RecordBatch = event.batch
                    outcome.results[-1].arrow_batches += 1
                    columns_ = [batch_.column(i).to_pylist() for i in range(len(outcome.results[-1].columns))]
                    outcome.results[-1].rows += zip(*columns_, strict=True)
                case StatementDone():
                    outcome.counts.append(event.row_count)
                case ErrorRaised(error):
                    outcome.errors.append(error)
                case Info():
                    outcome.messages.append(event.message)
        return outcome

    def rows(self, query: str) -> list[tuple[object, ...]]:
        return self.run(query).results[-1].rows

    def value(self, query: str) -> object:
        ((value,),) = self.rows(query)
        return value

    def types(self, query: str) -> dict[str, TsqlType]:
        return self.run(query).results[-1].types

    def error(self, batch: str) -> SqlServerError:
        """The one error of a batch that must fail."""
        (error,) = self.attempt(batch).errors
        return error
