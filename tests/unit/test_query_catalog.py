"""The catalogue: finding, describing, parameters, and SQL to paste."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from kvtrace.duckdb_session import Param, Session
from kvtrace.errors import ModelError, UsageError
from kvtrace.query.catalog import Catalog, QueryResult, load_catalog
from kvtrace.query.header import parse_query
from kvtrace.query.own import own_query
from kvtrace.query.params import parse_param, to_sql
from tests.traces import Traced, tables

SQL = """-- name: demo/echo
-- question: What was given?
-- grain: one row
-- params: size BIGINT = 7, names VARCHAR[] = null, share DOUBLE = null
-- reads: requests
-- order: size
-- note: the first.
-- note: the second.
select
    getvariable('size')::bigint as size,             -- tokens: the size, as a/b
    getvariable('names')::varchar[] as "names",      -- name: what was named
    getvariable('share')::double as share            -- ratio: a share
from requests
order by size
"""


def run_sql(session: Session, sql: str, params: dict[str, Param] | None = None) -> QueryResult:
    """The result of a person's SQL, by the way that `--sql` goes."""
    return own_query(sql, name="sql", source="--sql").run(session, "sql", params)


@pytest.fixture
def session() -> Iterator[Session]:
    with Session(threads=1) as opened:
        for name, frame in tables([Traced([1, 2]), Traced([1, 2])]).items():
            opened.create_table(name, frame)
        yield opened


@pytest.fixture
def demo() -> Catalog:
    return Catalog({"demo/echo": parse_query(SQL, source="demo/echo.sql")})


def test_installed_queries_are_found() -> None:
    names = load_catalog().names()
    assert "reuse/summary" in names
    assert list(names) == sorted(names)


def test_header_and_columns_are_described(demo: Catalog) -> None:
    info = demo.describe("demo/echo")
    assert info.question == "What was given?"
    assert info.grain == "one row"
    assert info.reads == ("requests",)
    assert info.notes == ("the first.", "the second.")
    assert [(p.name, p.type, p.default) for p in info.params] == [
        ("size", "BIGINT", "7"),
        ("names", "VARCHAR[]", None),
        ("share", "DOUBLE", None),
    ]
    assert [(c.name, c.unit, c.meaning) for c in info.columns] == [
        ("size", "tokens", "the size, as a/b"),
        ("names", "name", "what was named"),
        ("share", "ratio", "a share"),
    ]


def test_missing_parameters_take_the_default_or_null(demo: Catalog, session: Session) -> None:
    result = demo.run(session, "demo/echo")
    assert result.frame.rows()[0] == (7, None, None)
    assert result.columns == ("size", "names", "share")
    assert result.units == ("tokens", "name", "ratio")
    assert result.meanings == ("the size, as a/b", "what was named", "a share")


def test_parameters_of_one_run_do_not_reach_the_next(demo: Catalog, session: Session) -> None:
    demo.run(session, "demo/echo", {"size": 1, "share": 0.5})
    assert demo.run(session, "demo/echo").frame.rows()[0] == (7, None, None)


def test_unknown_query_names_close_matches() -> None:
    with pytest.raises(UsageError) as caught:
        load_catalog().describe("reuse/sumary")
    assert caught.value.hint is not None
    assert "`reuse/summary`" in caught.value.hint


def test_unknown_query_without_a_match_says_how_to_list() -> None:
    with pytest.raises(UsageError) as caught:
        load_catalog().describe("zzzzzzzz")
    assert caught.value.hint == "`kvtrace query` lists all"


@pytest.mark.parametrize(
    ("name", "given", "hint"),
    [
        ("demo/echo", "sise", "did you mean `size`"),
        ("demo/echo", "zzzz", "it takes size, names, share"),
    ],
)
def test_unknown_parameter_is_refused(
    demo: Catalog, session: Session, name: str, given: str, hint: str
) -> None:
    with pytest.raises(UsageError) as caught:
        demo.run(session, name, {given: 1})
    assert caught.value.hint == hint


def test_query_without_parameters_says_so(session: Session) -> None:
    with pytest.raises(UsageError) as caught:
        load_catalog().run(session, "reuse/summary", {"size": 1})
    assert caught.value.hint == "it takes none"


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"size": 3, "share": 0.25},
        {"names": ["it's", "b; drop table requests"]},
        {"names": [], "size": None},
        {"share": float("inf")},
    ],
)
def test_shown_sql_gives_the_same_rows_without_kvtrace(
    demo: Catalog, session: Session, params: dict[str, Param]
) -> None:
    shown = demo.show_sql("demo/echo", params)
    con = duckdb.connect(":memory:")
    con.execute("create table requests as select unnest([1, 2])")
    statements = duckdb.extract_statements(shown)
    for statement in statements[:-1]:
        con.execute(statement)
    rows = con.execute(statements[-1]).fetchall()
    assert rows == demo.run(session, "demo/echo", params).frame.rows()


def test_shown_sql_starts_with_its_parameters(demo: Catalog) -> None:
    lines = demo.show_sql("demo/echo", {"names": ["a"]}).splitlines()
    assert lines[:4] == [
        "set variable size = 7::bigint;",
        "set variable names = ['a']::varchar[];",
        "set variable share = null::double;",
        "-- name: demo/echo",
    ]
    assert lines[-1] == "order by size;"


def test_booleans_are_shown_as_sql() -> None:
    text = SQL.replace("size BIGINT = 7", "size BOOLEAN = null").replace("::bigint", "::boolean")
    catalog = Catalog({"demo/echo": parse_query(text, source="x")})
    assert catalog.show_sql("demo/echo", {"size": True}).startswith(
        "set variable size = true::boolean;"
    )
    assert "size = false::boolean" in catalog.show_sql("demo/echo", {"size": False})


def test_own_sql_runs_with_its_column_comments(session: Session) -> None:
    sql = "select\n    count(*) as requests   -- requests: all of them\nfrom requests\n"
    result = run_sql(session, sql)
    assert result.frame.rows() == [(2,)]
    assert result.units == ("requests",)


def test_own_sql_without_comments_has_blank_units(session: Session) -> None:
    result = run_sql(session, "select getvariable('x')::bigint as x", {"x": 4})
    assert result.frame.rows() == [(4,)]
    assert result.units == ("",)
    assert result.meanings == ("",)


@pytest.mark.parametrize(
    "sql", ["drop table requests", "select 1; select 2", "set threads = 1", "copy requests to 'x'"]
)
def test_anything_but_one_select_is_refused(session: Session, sql: str) -> None:
    with pytest.raises(UsageError, match="only a single SELECT can be run"):
        run_sql(session, sql)


def test_own_sql_cannot_read_other_files(session: Session) -> None:
    with pytest.raises(UsageError, match="`read_text` cannot be called here"):
        run_sql(session, "select * from read_text('/etc/hostname')")


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (SQL.replace("-- grain: one row\n", ""), "has no `-- grain:` line"),
        (SQL.replace("-- grain:", "-- rows:"), "has an odd header line `-- rows:`"),
        (
            SQL.replace("size BIGINT = 7", "size INTERVAL"),
            "declares a parameter as `size INTERVAL`",
        ),
        (SQL[: SQL.index("select")] + "select 1", "documents no result column"),
        (SQL.replace("-- ", "--"), "has no `-- name:` line"),
    ],
)
def test_broken_files_are_named(broken: str, message: str) -> None:
    with pytest.raises(ModelError, match=r"`demo\.sql`") as caught:
        parse_query(broken, source="demo.sql")
    assert message in caught.value.message


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("BIGINT", "12", 12),
        ("DOUBLE", "1e3", 1000.0),
        ("VARCHAR", "a, b", "a, b"),
        ("BOOLEAN", "True", True),
        ("BIGINT[]", "1000,10000", [1000, 10000]),
        ("BIGINT[]", "[1, 2]", [1, 2]),
        ("BIGINT[]", "", []),
        ("VARCHAR[]", "a,b", ["a", "b"]),
        ("BIGINT[]", "null", None),
    ],
)
def test_text_becomes_a_value_of_the_declared_type(kind: str, text: str, value: Param) -> None:
    assert parse_param("x", kind, text) == value


@pytest.mark.parametrize(
    ("kind", "text"), [("BIGINT", "1.5"), ("DOUBLE", "many"), ("BOOLEAN", "1"), ("BIGINT[]", "1;2")]
)
def test_text_of_another_type_is_refused_with_an_example(kind: str, text: str) -> None:
    with pytest.raises(UsageError, match=f"is not a {re.escape(kind)} for parameter `size`") as e:
        parse_param("size", kind, text)
    assert e.value.hint is not None
    assert e.value.hint.startswith("write it as `size=")


def test_texts_are_parsed_by_the_declaration_of_the_query(demo: Catalog) -> None:
    parsed = demo.parse_params("demo/echo", {"size": "4", "names": "a,b"})
    assert parsed == {"size": 4, "names": ["a", "b"]}
    with pytest.raises(UsageError, match="has no parameter `sise`"):
        demo.parse_params("demo/echo", {"sise": "4"})


def test_result_without_a_from_is_documented_too() -> None:
    text = SQL[: SQL.index("select")] + "select\n    1::bigint as size   -- tokens: one\n"
    assert [column.name for column in parse_query(text, source="x").columns] == ["size"]


def test_header_alone_is_no_query() -> None:
    with pytest.raises(ModelError, match="documents no result column"):
        parse_query(SQL[: SQL.index("select")], source="x")


def lay_out(folder: Path, text: str) -> Path:
    """A folder with one query at demo/echo.sql, and a file that is none."""
    (folder / "queries" / "demo").mkdir(parents=True)
    (folder / "queries" / "demo" / "echo.sql").write_text(text, encoding="utf-8")
    (folder / "queries" / "README.md").write_text("not a query", encoding="utf-8")
    return folder


def test_queries_inside_the_package_come_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = lay_out(tmp_path, SQL)
    monkeypatch.setattr("kvtrace.query.folders.resources.files", lambda _: package)
    assert load_catalog().names() == ("demo/echo",)


def test_query_that_calls_itself_otherwise_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = lay_out(tmp_path, SQL.replace("demo/echo", "demo/other"))
    monkeypatch.setattr("kvtrace.query.folders.resources.files", lambda _: package)
    with pytest.raises(ModelError, match="calls itself `demo/other`"):
        load_catalog()


def test_installation_without_queries_says_how_to_get_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kvtrace.query.folders.resources.files", lambda _: tmp_path)
    monkeypatch.setattr("kvtrace.query.folders.__file__", str(tmp_path / "a" / "b" / "c.py"))
    with pytest.raises(ModelError, match="this installation has no queries") as caught:
        load_catalog()
    assert caught.value.hint is not None


def test_null_is_sql_null() -> None:
    assert to_sql(None) == "null"
