"""A person's own SQL reads the dataset and does nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest

from kvtrace.duckdb_session import Session
from kvtrace.errors import ModelError, UsageError
from kvtrace.query.catalog import QueryResult
from kvtrace.query.guard import guarded
from kvtrace.query.own import own_query

PART = "(format parquet, use_tmp_file false)"


def run_sql(session: Session, sql: str) -> QueryResult:
    """The result of a person's SQL, by the way that `--sql` goes."""
    return own_query(sql, name="sql", source="--sql").run(session, "sql")


@pytest.fixture
def part(tmp_path: Path) -> Path:
    path = tmp_path / "data" / "part-00000.parquet"
    path.parent.mkdir()
    with Session(write_dirs=[path.parent]) as writer:
        writer.write_parquet(pl.DataFrame({"a": [3, 1, 2]}), path)
    return path


@pytest.fixture
def session(part: Path) -> Iterator[Session]:
    with Session(read_files=[part], threads=1) as opened:
        opened.create_parquet_view("requests", [part])
        opened.create_table("held", pl.DataFrame({"a": [1]}))
        yield opened


HOSTILE = {
    "copy": f"copy (select 7 as a) to '{{part}}' {PART}",
    "copy in a with": f"with x as (copy (select 7 as a) to '{{part}}' {PART}) select * from x",
    "copy in a nested with": "select * from (with x as (copy (select 7 as a) to '{part}' "
    f"{PART}) select * from x)",
    "copy behind explain": f"explain analyze copy (select 7 as a) to '{{part}}' {PART}",
    "copy behind a comment": f"/* explain */ explain /* a */ analyze copy (select 7) to '{{part}}' "
    f"{PART}",
    "copy in a with behind explain": "explain analyze with x as (copy (select 7 as a) to '{part}' "
    f"{PART}) select * from x",
    "copy made of text": "select * from query('with x as (copy (select 7 as a) to ''{part}'' "
    f"{PART}) select * from x')",
    "copy made of a tree": "select * from json_execute_serialized_sql(json_serialize_sql('with x as"
    f" (copy (select 7 as a) to ''{{part}}'' {PART}) select * from x'))",
    "insert in a with": "with x as (insert into held values (2) returning a) select * from x",
    "delete in a with": "with x as (delete from held returning a) select * from x",
    "update in a with": "with x as (update held set a = 5 returning a) select * from x",
    "insert": "insert into held values (2)",
    "delete": "delete from held",
    "drop": "drop view requests",
    "create": "create table other as select 1",
    "create behind explain": "explain analyze create table other as select 1",
    "attach": "attach '{part}.db' as other",
    "install": "install httpfs",
    "load": "load httpfs",
    "set": "set threads = 1",
    "set variable": "set variable x = 1",
    "reset": "reset threads",
    "pragma": "pragma version",
    "pragma as a function": "select * from pragma_version()",
    "call": "call pragma_version()",
    "prepare": "prepare p as select 1",
    "export": "export database '{part}.d'",
    "checkpoint": "from checkpoint()",
    "vacuum": "vacuum",
    "begin": "begin transaction",
    "two statements": "select 1; select 2",
    "two statements behind a comment": "select 1 /* ; */ ; drop view requests",
    "out of the subquery": "select 1) as x; drop view requests; select * from (select 1",
    "nothing": "",
    "only a comment": "-- nothing",
    "text of a file": "select * from read_text('/etc/hostname')",
    "bytes of a file": "select * from read_blob('/etc/hostname')",
    "csv": "select * from read_csv('/etc/hostname')",
    "csv by name": "select * from '/etc/hostname'",
    "json of a file": "select * from read_json('/proc/self/environ')",
    "another file of the folder": "select * from read_text('{part}.json')",
    "names of files": "select * from glob('/etc/*')",
    "metadata of a file": "select * from parquet_metadata('/etc/hostname')",
    "sniffing": "select * from sniff_csv('/etc/hostname')",
    "network": "select * from read_csv('http://127.0.0.1:9/x.csv')",
    "network by name": "select * from 'https://127.0.0.1:9/x.parquet'",
    "environment": "select getenv('HOME')",
    "settings": "select * from duckdb_settings()",
    "one setting": "select current_setting('temp_directory')",
    "one setting inside": "select (select max(current_setting('temp_directory')) from requests)",
    "secrets": "select * from duckdb_secrets()",
    "extensions": "select * from duckdb_extensions()",
    "logs": "select * from enable_logging()",
    "python variables": "select * from frame",
    "a table by text": "select * from query_table('/etc/hostname')",
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_sql_is_refused_and_changes_nothing(
    session: Session, part: Path, kind: str
) -> None:
    frame = pl.DataFrame({"leaked": [1]})  # a variable that DuckDB could find by its name
    before = part.read_bytes()
    with pytest.raises((UsageError, ModelError)):
        run_sql(session, HOSTILE[kind].format(part=part))
    assert part.read_bytes() == before
    assert [path.name for path in part.parent.iterdir()] == [part.name]
    assert session.rows("select a from held") == [{"a": 1}]
    assert len(session.rows("select a from requests")) == 3
    assert frame.height == 1


@pytest.mark.parametrize(
    ("sql", "rows"),
    [
        ("select a from requests order by a desc", [(3,), (2,), (1,)]),
        ("select max(a) from requests;", [(3,)]),
        ("select max(a) from requests; -- the largest\n", [(3,)]),
        ("-- head\nselect max(a) from requests -- tail", [(3,)]),
        ("select ';' -- ; select 2", [(";",)]),
        ("with x as (select a from requests) select sum(a)::bigint from x", [(6,)]),
        ("select 1 union all select 2 order by 1", [(1,), (2,)]),
        (
            "with recursive t(n) as (select 1 union all select n + 1 from t where n < 3) "
            "select n from t order by n desc",
            [(3,), (2,), (1,)],
        ),
        ("from range(2)", [(0,), (1,)]),
        ("values (1), (2)", [(1,), (2,)]),
        ("select unnest([2, 1]) as n", [(2,), (1,)]),
        ("select getvariable('nothing')", [(None,)]),
        ("show tables", [("held",), ("requests",)]),
    ],
)
def test_any_select_runs_in_its_order(
    session: Session, sql: str, rows: list[tuple[object, ...]]
) -> None:
    assert run_sql(session, sql).frame.rows() == rows


@pytest.mark.parametrize("sql", ["describe requests", "summarize requests"])
def test_tables_describe_themselves(session: Session, sql: str) -> None:
    assert run_sql(session, sql).frame["column_name"].to_list() == ["a"]


@pytest.mark.parametrize(
    "sql", ["explain select a from requests", "EXPLAIN (analyze) select a from requests;"]
)
def test_a_select_is_explained(session: Session, sql: str) -> None:
    assert "PARQUET" in run_sql(session, sql).frame["explain_value"][0].upper()


def test_the_hint_names_what_can_be_read(session: Session) -> None:
    with pytest.raises(UsageError, match="`read_text` cannot be called here") as caught:
        guarded(session, "select * from read_text('x')")
    assert "show tables" in (caught.value.hint or "")
