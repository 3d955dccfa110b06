"""A catalog with the REST interface of Iceberg, in the process of the test: its tables are places of metadata.

It has what engines need to read, and to register. It commits nothing: no test writes through it.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Thread
from typing import Any

from flask import Flask, Response, request
from werkzeug.serving import make_server

from floodmark.iceberg.folder import LakeFolder

CLIENT, SECRET = "floodmark-client", "catalog-secret"
TOKEN = "a-token-of-this-catalog"
_SEPARATOR = "\x1f"
_ENDPOINTS = (
    "GET /v1/{prefix}/namespaces",
    "POST /v1/{prefix}/namespaces",
    "GET /v1/{prefix}/namespaces/{namespace}",
    "HEAD /v1/{prefix}/namespaces/{namespace}",
    "GET /v1/{prefix}/namespaces/{namespace}/tables",
    "GET /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "DELETE /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "POST /v1/{prefix}/namespaces/{namespace}/register",
    "POST /v1/{prefix}/tables/rename",
)


@dataclass
class CatalogServer:
    """A catalog, with what it has. lake: where the files of its tables are."""

    lake: LakeFolder
    url: str = ""
    overwrites: bool = True
    """Whether it knows ``overwrite`` of the specification."""
    refuses: int = 0
    """The status of the answer to each request for a table; 0 for none."""
    token_fields: tuple[str, ...] = ("access_token", "token_type", "expires_in")
    """The fields of its answer to a login."""
    file_properties: Mapping[str, str] = field(default_factory=dict)
    """Properties by which a reader reaches the files."""
    namespaces: set[str] = field(default_factory=set)
    tables: dict[tuple[str, str], str] = field(default_factory=dict)
    """Where the metadata of each table is, by namespace and name."""

    def connection(self) -> str:
        """Return Airflow's connection to it, as JSON."""
        extra = {"warehouse": "company"}
        return json.dumps(
            {"conn_type": "iceberg", "host": self.url, "login": CLIENT, "password": SECRET, "extra": extra}
        )

    def properties(self) -> dict[str, str]:
        """Return the properties by which PyIceberg reads it."""
        return {
            "type": "rest",
            "uri": self.url,
            "warehouse": "company",
            "credential": f"{CLIENT}:{SECRET}",
            "oauth2-server-uri": f"{self.url}/v1/oauth/tokens",
        }

    def answer(self, namespace: str, name: str) -> Mapping[str, Any]:
        location = self.tables[namespace, name]
        content = self.lake.read(location)
        assert content is not None, f"{location} is gone"
        metadata = json.loads(content)
        return {"metadata-location": location, "metadata": metadata, "config": dict(self.file_properties)}


@contextmanager
def open_catalog(lake: LakeFolder, **fields: Any) -> Iterator[CatalogServer]:
    """Start a catalog without tables, and end it."""
    catalog = CatalogServer(lake, **fields)
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = make_server("127.0.0.1", 0, _application(catalog), threaded=True)
    catalog.url = f"http://127.0.0.1:{server.server_port}/catalog"
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield catalog
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _error(status: int, kind: str, message: str) -> Response:
    body = {"error": {"message": message, "type": kind, "code": status}}
    return Response(json.dumps(body), status, content_type="application/json")


def _application(catalog: CatalogServer) -> Flask:
    app = Flask(__name__)
    at = "/catalog/v1/company/namespaces"

    @app.before_request
    def check_login() -> Response | None:
        if request.path.endswith(("/v1/oauth/tokens", "/v1/config")):
            return None
        if request.headers.get("Authorization") != f"Bearer {TOKEN}":
            return _error(401, "NotAuthorizedException", "no token of this catalog")
        return _error(catalog.refuses, "Refused", "the test lets it refuse") if catalog.refuses else None

    @app.post("/catalog/v1/oauth/tokens")
    def give_token() -> Any:
        # RFC 6749, 2.3.1: a client has its secret in the form, or logs in by it.
        login = request.authorization
        asked = (login.username, login.password) if login else map(request.form.get, ("client_id", "client_secret"))
        if tuple(asked) != (CLIENT, SECRET):
            return {"error": "invalid_client"}, 401
        fields = {"access_token": TOKEN, "token_type": "bearer", "expires_in": 3600}
        return {name: fields[name] for name in catalog.token_fields}

    @app.get("/catalog/v1/config")
    def read_config() -> Any:
        assert request.args["warehouse"] == "company"
        return {"defaults": {}, "overrides": {"prefix": "company"}, "endpoints": _ENDPOINTS}

    @app.get(at)
    def list_namespaces() -> Any:
        return {"namespaces": [[name] for name in sorted(catalog.namespaces)]}

    @app.post(at)
    def create_namespace() -> Any:
        [name] = request.json["namespace"]
        if name in catalog.namespaces:
            return _error(409, "AlreadyExistsException", f"namespace {name} exists")
        catalog.namespaces.add(name)
        return {"namespace": [name], "properties": {}}

    @app.get(f"{at}/<namespace>")
    def read_namespace(namespace: str) -> Any:
        if namespace not in catalog.namespaces:
            return _error(404, "NoSuchNamespaceException", f"no namespace {namespace}")
        return {"namespace": namespace.split(_SEPARATOR), "properties": {}}

    @app.get(f"{at}/<namespace>/tables")
    def list_tables(namespace: str) -> Any:
        found = [{"namespace": [of], "name": name} for of, name in sorted(catalog.tables) if of == namespace]
        return {"identifiers": found}

    @app.get(f"{at}/<namespace>/tables/<table>")
    def load_table(namespace: str, table: str) -> Any:
        if (namespace, table) not in catalog.tables:
            return _error(404, "NoSuchTableException", f"no table {namespace}.{table}")
        return catalog.answer(namespace, table)

    @app.delete(f"{at}/<namespace>/tables/<table>")
    def drop_table(namespace: str, table: str) -> Any:
        del catalog.tables[namespace, table]
        return "", 204

    @app.post(f"{at}/<namespace>/register")
    def register_table(namespace: str) -> Any:
        asked = request.json
        if namespace not in catalog.namespaces:
            return _error(404, "NoSuchNamespaceException", f"no namespace {namespace}")
        may_move = asked.get("overwrite") and catalog.overwrites
        if (namespace, asked["name"]) in catalog.tables and not may_move:
            return _error(409, "AlreadyExistsException", f"table {asked['name']} exists")
        catalog.tables[namespace, asked["name"]] = asked["metadata-location"]
        return catalog.answer(namespace, asked["name"])

    @app.post("/catalog/v1/company/tables/rename")
    def rename_table() -> Any:
        [before, now] = (
            (*request.json[each]["namespace"], request.json[each]["name"]) for each in ("source", "destination")
        )
        catalog.tables[now] = catalog.tables.pop(before)
        return "", 204

    return app
