"""A REST catalog in which the tables of a lake are registered, for engines that reach tables by one.

The catalog in the ledger stays the one that windows are published in. A table is registered by the location of its
metadata, after its window has been published: so readers of the REST catalog see tables one after the other, a moment
later, and never what was not checked.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from pyiceberg import exceptions
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.catalog.rest.auth import AuthManager
from pyiceberg.table import Table
from requests import PreparedRequest, RequestException, Response, Session
from requests.adapters import HTTPAdapter

from floodmark.core.errors import ConfigError, FloodmarkError, TargetRefusedError, WarehouseUnavailableError
from floodmark.core.naming import versions_name
from floodmark.core.schema import TableName
from floodmark.iceberg.folder import plain_location
from floodmark.iceberg.lake import PUBLISHED, LakeCatalog
from floodmark.iceberg.metadata import NO_SNAPSHOT, read_metadata

_LOG = logging.getLogger(__name__)
_TABLES_AT_ONCE = 8
_CONNECT_SECONDS, _ANSWER_SECONDS = 10, 60
_REPAIR = "The tables of the lake are published. The next run registers them, and floodmark lake register does so now."


@dataclass(frozen=True, slots=True)
class Registry:
    """A REST catalog. It holds no session: each call logs in."""

    conn_id: str
    """The connection that names it, for messages."""
    properties: Mapping[str, Any] = field(repr=False)
    """Those of PyIceberg, with secrets."""

    def register(self, lake: LakeCatalog, targets: Sequence[TableName]) -> list[TableName]:
        """Let the REST catalog have each table as readers of the lake see it. Return those that were elsewhere.

        Repeating it is harmless. A table that another process publishes meanwhile is registered again, so that the
        newest stays. Raises ConfigError, TargetRefusedError or WarehouseUnavailableError, after all other tables.
        """
        left = _find_published(lake, targets)
        if not left:
            return []
        client = self._open({target.schema for target in left})
        moved: set[TableName] = set()
        while left:
            with ThreadPoolExecutor(_TABLES_AT_ONCE, thread_name_prefix="register") as pool:
                errors = list(pool.map(partial(self._register, client, lake, moved), left.items()))
            now = _find_published(lake, list(left))
            settled = {target: at for target, at in left.items() if now.get(target) == at}
            # What was published meanwhile may be registered already: the older one was refused for it.
            for target, error in zip(left, errors, strict=True):
                if error is not None and target in settled:
                    raise error
            left = {target: at for target, at in now.items() if target not in settled}
        found = sorted(moved, key=str)
        if found:
            _LOG.info("Registered in the catalog %s: %s.", self.conn_id, ", ".join(map(str, found)))
        return found

    def rename(self, lake: LakeCatalog, before: TableName, now: TableName) -> None:
        """Give a table the name that it has in the lake by now, and the ended versions of a history. Raises as above.

        A table that the REST catalog does not have under its former name, or that is not the lake's, is left alone, and
        so is one whose new name is taken there: ``register`` refuses that one.
        """
        names = {now: before, versions_name(now): versions_name(before)}
        published = _find_published(lake, list(names))
        if not published:
            return
        client = self._open({now.schema})
        for target, location in published.items():
            with self._explained(f"about {names[target]} "):
                found = _load(client, names[target])
                is_ours = found is not None and _came_before(lake, found, location)
                if is_ours and _load(client, target) is None:
                    client.rename_table(_identifier(names[target]), _identifier(target))

    def list_behind(self, lake: LakeCatalog, targets: Sequence[TableName]) -> list[TableName]:
        """Return the tables that the REST catalog does not have as readers of the lake see them. Raises as above."""
        published = _find_published(lake, targets)
        client = self._open()
        with self._explained():
            return [target for target, at in published.items() if not _is_at(_load(client, target), at)]

    def _open(self, schemas: Iterable[str] = ()) -> RestCatalog:
        """Return a client that has logged in. schemas: namespaces, which are made where they are missing."""
        with self._explained():
            client = _Client(self.conn_id, **self.properties)
            for schema in sorted(schemas):
                if not client.namespace_exists((schema,)):
                    client.create_namespace_if_not_exists((schema,))
        return client

    def _register(
        self, client: RestCatalog, lake: LakeCatalog, moved: set[TableName], published: tuple[TableName, str]
    ) -> FloodmarkError | None:
        """Register a table, unless it is. Return the error about it."""
        target, location = published
        try:
            with self._explained(f"about {target} "):
                found = _load(client, target)
                if _is_at(found, location):
                    return None
                if found is not None and not _came_before(lake, found, location):
                    raise TargetRefusedError(
                        str(target),
                        f"the catalog {self.conn_id} has a table of this name that is not the lake's, or that another "
                        "program has written to.",
                        "It stays as it is. Drop it in that catalog without its files, then: floodmark lake register.",
                    )
                client.register_table(_identifier(target), location, overwrite=found is not None)
                moved.add(target)
        except FloodmarkError as error:
            return error
        return None

    @contextmanager
    def _explained(self, about: str = "") -> Iterator[None]:
        """Raise the errors of the client as those that say what to do. about: what it is asked about."""
        subject = f"the catalog {self.conn_id}"
        try:
            yield
        except FloodmarkError:
            raise
        except (exceptions.UnauthorizedError, exceptions.OAuthError, exceptions.ForbiddenError) as error:
            raise ConfigError(
                subject, f"it refused what it was asked {about}by this login.", _REPAIR, str(error)
            ) from None
        except (exceptions.TableAlreadyExistsError, NotImplementedError) as error:
            raise ConfigError(
                subject,
                "it cannot register a table that it has at the newer place of its metadata.",
                "The REST specification has “overwrite” for that (docs/lakehouse.md, “In a REST catalog”).",
                str(error),
            ) from None
        except (exceptions.RESTError, RequestException, ValueError) as error:
            # The text of a ValueError quotes the answer, which may be the one with the token.
            detail = type(error).__name__ if isinstance(error, ValueError) else str(error)
            what = f"it gave no answer {about}that a REST catalog gives."
            raise WarehouseUnavailableError(subject, what, _REPAIR, detail) from None


def _find_published(lake: LakeCatalog, targets: Sequence[TableName]) -> dict[TableName, str]:
    """Return where the metadata of tables is that readers see; without tables that no window has published."""
    if not lake.exists():
        return {}
    published = lake.list_published(targets)
    found = lake.read_locations(targets)
    return {
        target: found[PUBLISHED, target] for target in targets if (PUBLISHED, target) in found and published.get(target)
    }


def _load(client: RestCatalog, target: TableName) -> Table | None:
    try:
        found: Table = client.load_table(_identifier(target))
    except exceptions.NoSuchTableError:
        return None
    return found


def _identifier(target: TableName) -> tuple[str, str]:
    return target.schema, target.name


def _is_at(found: Table | None, location: str) -> bool:
    return found is not None and plain_location(found.metadata_location) == plain_location(location)


def _came_before(lake: LakeCatalog, found: Table, location: str) -> bool:
    """Return whether a table is an earlier state of the one at a location, so that no row of others is lost."""
    now = read_metadata(lake.folder, location) or {}
    if now.get("table-uuid") != str(found.metadata.table_uuid):
        return False
    earlier = {plain_location(each["metadata-file"]) for each in now.get("metadata-log", ())}
    newest = found.metadata.current_snapshot_id
    known = {each["snapshot-id"] for each in now.get("snapshots", ())}
    return plain_location(found.metadata_location) in earlier or newest in known or newest in NO_SNAPSHOT


# --------------------------------------------------------------------------------------------------------------------
# PyIceberg's client, which would wait for an answer without an end.


class _Bounded(HTTPAdapter):
    def send(self, request: PreparedRequest, *args: Any, **kwargs: Any) -> Response:
        return super().send(request, *args, **kwargs | {"timeout": (_CONNECT_SECONDS, _ANSWER_SECONDS)})


class _Client(RestCatalog):
    def _create_legacy_oauth2_auth_manager(self, session: Session) -> AuthManager:
        # The session is new, and asks for a token here.
        for scheme in ("https://", "http://"):
            session.mount(scheme, _Bounded())
        return super()._create_legacy_oauth2_auth_manager(session)
