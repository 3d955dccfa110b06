"""The tables of a pipeline, by the names that an operator writes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from floodmark.core.errors import ConfigError
from floodmark.core.schema import TableName

if TYPE_CHECKING:
    from floodmark.app.context import AppContext
    from floodmark.core.settings import TableSettings


def find_table_settings(app: AppContext, pipeline: str, table: str) -> TableSettings:
    """Return the settings of a table. table: its name at the source. Raises ConfigError for an unknown one."""
    tables = app.config.settings(pipeline).tables
    name = parse_table(pipeline, table)
    for settings in tables:
        if settings.source.folded == name.folded:
            return settings
    raise ConfigError(
        pipeline, f"it has no table {table}.", f"Its tables: {', '.join(str(each.source) for each in tables)}."
    )


def parse_table(subject: str, table: str) -> TableName:
    """Return a name that an operator wrote. Raises ConfigError about ``subject``."""
    try:
        return TableName.parse(table)
    except ValueError as error:
        raise ConfigError(subject, f"{error}.") from None
