"""Clauses of SQL Server that the grammar does not know: a statement that cannot be read is refused by their name."""

from __future__ import annotations

from itertools import pairwise
from typing import Final

from sqlserver_emulator.errors import NotSupportedByEmulatorError, SqlServerError
from sqlserver_emulator.syntax.lexer import NAME, tokenize

_CLAUSES: Final = {
    ("OPENROWSET", "("): "OPENROWSET",
    ("OPENDATASOURCE", "("): "OPENDATASOURCE",
    ("OPENQUERY", "("): "OPENQUERY",
    ("OPENXML", "("): "OPENXML",
    ("CONTAINSTABLE", "("): "CONTAINSTABLE (full text)",
    ("FREETEXTTABLE", "("): "FREETEXTTABLE (full text)",
    ("PREDICT", "("): "PREDICT",
    ("MATCH", "("): "MATCH (graph tables)",
    ("XMLNAMESPACES", "("): "WITH XMLNAMESPACES",
    ("FOR", "SYSTEM_TIME"): "FOR SYSTEM_TIME (temporal tables)",
    ("FOR", "BROWSE"): "FOR BROWSE",
    ("WITHIN", "GROUP"): "WITHIN GROUP of this function",
    ("FOR", "PATH"): "FOR PATH (graph tables)",
    (".", "NODES"): "the xml method nodes()",
    (".", "MODIFY"): "the xml method modify()",
    (".", "QUERY"): "the xml method query()",
    ("::", "PARSE"): "methods of a type",
    ("::", "POINT"): "methods of a type",
    ("::", "STGEOMFROMTEXT"): "methods of a type",
    ("::", "GETROOT"): "methods of a type",
    ("CURRENT", "OF"): "WHERE CURRENT OF",
    ("COMPUTE", "SUM"): "COMPUTE",
}
"""Two words that follow each other -> the name of the clause that they belong to."""


def refuse_unknown_clause(text: str) -> None:
    """Raise 49999 if the statement has such a clause. Called only where its text could not be read."""
    try:
        tokens = tokenize(text)
    except SqlServerError:
        return
    for token, following in pairwise(tokens):
        clause = _CLAUSES.get((token.word, following.word))
        if clause is not None and (token.kind == NAME or not token.word.isalpha()):
            raise NotSupportedByEmulatorError(clause)
