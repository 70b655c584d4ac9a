"""What a person's own SQL may be: one SELECT over the tables of a dataset, whatever its nesting.

A SELECT can write: DuckDB lets a `with` hold COPY, INSERT, UPDATE and DELETE, and runs them; and a
few table functions run SQL that they are given as text. So the syntax tree is read, not the text,
and what is allowed runs as a subquery, where DuckDB itself refuses statements that write.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Final

from kvtrace.duckdb_session import Session
from kvtrace.errors import UsageError

_READING_NODES: Final = frozenset(
    {"SELECT_NODE", "SET_OPERATION_NODE", "RECURSIVE_CTE_NODE", "CTE_NODE"}
)
_TABLE_FUNCTIONS: Final = frozenset(
    {"range", "generate_series", "unnest", "repeat", "json_each", "json_tree"}
)
_REFUSED_FUNCTIONS: Final = frozenset(
    {"current_setting", "getenv", "nextval", "read_blob", "read_text", "set_config", "write_log"}
)
_EXPLAIN: Final = re.compile(
    r"(?P<head>(?:\s|--[^\n]*(?:\n|\Z)|/\*.*?\*/)*explain\b(?:\s+analyze\b)?(?:\s*\([^()]*\))?)"
    r"(?=\W)(?P<rest>.*)",
    re.IGNORECASE | re.DOTALL,
)

_LAST_COMMENT: Final = re.compile(r"(--[^\n]*|/\*(?:(?!\*/).)*\*/)\s*\Z", re.DOTALL)


def guarded(session: Session, sql: str) -> str:
    """The SQL as it may run: one SELECT, or EXPLAIN of one, that reads tables and nothing else.

    Raises:
        UsageError: KVT-Q021 it is anything else, KVT-Q024 it calls what may not be called.
        ModelError: KVT-Q003, it cannot be parsed.
    """
    if not session.is_single_select(sql):
        raise _not_one_select()
    explained = _EXPLAIN.fullmatch(sql)
    if explained is not None and session.syntax_tree(sql) is None:
        return explained["head"] + " " + _as_subquery(session, explained["rest"])
    return _as_subquery(session, sql)


def _as_subquery(session: Session, sql: str) -> str:
    tree = session.syntax_tree(sql)
    statements = [] if tree is None else json.loads(tree)["statements"]
    if len(statements) != 1:
        raise _not_one_select()
    for node in _nodes(statements[0]):
        _check(node)
    return _wrapped(session, sql)


def _nodes(tree: object) -> Iterator[dict[str, object]]:
    """Every object of a syntax tree; a stack, not recursion: a tree can be deep."""
    waiting = [tree]
    while waiting:
        part = waiting.pop()
        if isinstance(part, dict):
            yield part
            waiting += part.values()
        elif isinstance(part, list):
            waiting += part


def _check(node: dict[str, object]) -> None:
    kind = node.get("type")
    if isinstance(kind, str) and kind.endswith("_NODE") and kind not in _READING_NODES:
        raise _not_one_select()
    called = node.get("function_name")
    if isinstance(called, str) and called.lower() in _REFUSED_FUNCTIONS:
        raise _not_callable(called)
    if kind == "TABLE_FUNCTION":
        function = node.get("function")
        name = function.get("function_name") if isinstance(function, dict) else None
        if not isinstance(name, str) or name.lower() not in _TABLE_FUNCTIONS:
            raise _not_callable(str(name))


def _wrapped(session: Session, sql: str) -> str:
    """The statement as a subquery, without a semicolon and the comments behind it."""
    kept = sql.rstrip()
    while kept:
        text = f"select * from (\n{kept.rstrip(';')}\n) as asked"
        if session.syntax_tree(text) is not None:
            return text
        shorter = _LAST_COMMENT.sub("", kept).rstrip().rstrip(";").rstrip()
        kept = shorter if shorter != kept else ""
    raise _not_one_select()


def _not_one_select() -> UsageError:
    return UsageError(
        "KVT-Q021",
        "only a single SELECT can be run",
        hint="a query reads the dataset and changes nothing; run statements one at a time",
    )


def _not_callable(name: str) -> UsageError:
    return UsageError(
        "KVT-Q024",
        f"`{name}` cannot be called here",
        cause="a query reads the tables of the dataset: no file, no setting, no SQL made of text",
        hint="`show tables` lists them, `describe requests` the columns of one",
    )
