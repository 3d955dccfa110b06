"""The data docs on the status pages: the reports on the checks of a pipeline's windows, under the pipeline's rights."""

from __future__ import annotations

from collections.abc import Callable

from floodmark.app.pipeline import DATA_DOCS_VARIABLE
from floodmark.core.errors import FloodmarkError
from floodmark.orchestration.pages.buttons import Rights
from floodmark.orchestration.pages.content import NOT_FOUND, Answer, NotShownError, Query, failure_answer, open_named

DOCS_POLICY = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'self'"
"""The content security policy of these pages, which Great Expectations makes: a browser loads and runs nothing."""
_FORBIDDEN = 403


def docs_page(rights: Rights, may_read_connection: Callable[[str], bool], pipeline: str, page: str) -> Answer:
    """Return a page of the data docs. page: its path in their folder, "" for the front page of the pipeline.

    A page about rows that did not pass may have their values. It is for those who may read the warehouse's connection,
    as are the keys of rows in quarantine.
    """
    try:
        opened = open_named(rights.readable_dags, pipeline)
        conn_id = opened.app.config.warehouse.conn_id
        if opened.data_docs.has_rows(page) and not may_read_connection(conn_id):
            what = "This page may have values of rows"
            raise NotShownError(f"{what}: only users who may read the connection {conn_id} see it.", _FORBIDDEN)
        found = opened.data_docs.read(pipeline, page)
        if found is None:
            where = f"{DATA_DOCS_VARIABLE} names their folder, for the API server too"
            raise NotShownError(
                f"The data docs have no such page. {where}. Pages of old windows are deleted.", NOT_FOUND
            )
    except (FloodmarkError, NotShownError) as failure:
        return failure_answer(Query(), failure, "../" * (page.count("/") + 2))
    return Answer(found)
