"""Every query file keeps the rules of SQL here: one documented, ordered, typed SELECT."""

from __future__ import annotations

import re
from collections.abc import Iterator

import duckdb
import polars as pl
import pytest

from kvtrace.duckdb_session import Session
from kvtrace.query.catalog import load_catalog
from kvtrace.query.folders import find_queries
from kvtrace.query.header import QueryInfo
from kvtrace.schema.tables import REQUESTS, TABLES

CATALOG = load_catalog()
QUERIES = [CATALOG.describe(name) for name in CATALOG.names()]
ALLOWED = {pl.Int64(), pl.Float64(), pl.String(), pl.Boolean()}
query = pytest.mark.parametrize("info", QUERIES, ids=lambda info: info.name)


@pytest.fixture(scope="module")
def empty() -> Iterator[Session]:
    """A session over a dataset without rows."""
    with Session(threads=1) as session:
        for name, table in TABLES.items():
            session.create_table(name, table.empty())
        yield session


def bare(sql: str) -> str:
    """The SQL without comments and string literals."""
    return re.sub(r"'[^']*'", "''", re.sub(r"--.*", "", sql))


@query
def test_file_is_one_select(info: QueryInfo, empty: Session) -> None:
    statements = duckdb.extract_statements(info.sql)
    assert [statement.type for statement in statements] == [duckdb.StatementType.SELECT]
    assert ";" not in bare(info.sql)


@query
def test_every_result_column_is_documented_in_order(info: QueryInfo, empty: Session) -> None:
    result = CATALOG.run(empty, info.name)
    assert result.columns == tuple(column.name for column in info.columns)
    assert all(result.units)
    assert all(result.meanings)


@query
def test_result_types_are_plain(info: QueryInfo, empty: Session) -> None:
    frame = CATALOG.run(empty, info.name).frame
    assert set(frame.dtypes) <= ALLOWED, frame.schema


@query
def test_result_names_its_columns_and_ends_in_an_order(info: QueryInfo) -> None:
    result = bare(info.sql[info.sql.rindex("\nselect\n") :])
    assert "*\n" not in result.replace(" ", "")
    last = result.rstrip().splitlines()[-1]
    assert last.startswith("order by ") or (
        last.startswith("limit ") and result.rstrip().splitlines()[-2].startswith("order by ")
    )


@query
def test_keywords_are_lower_case(info: QueryInfo) -> None:
    assert not re.findall(r"[A-Z]{2,}", bare(info.sql))


@query
def test_every_cte_says_what_its_rows_are(info: QueryInfo) -> None:
    openings = re.findall(r"^(?:with )?\w+ as \(.*$", info.sql, flags=re.M)
    assert all(re.search(r"\(   -- one row", opening) for opening in openings), openings


@query
def test_parameters_are_declared_cast_and_used(info: QueryInfo) -> None:
    used = set(re.findall(r"getvariable\('(\w+)'\)::(\w+(?:\[\])?)", info.sql))
    declared = {(param.name, param.type.lower()) for param in info.params}
    assert used == declared
    assert info.sql.count("getvariable(") == len(re.findall(r"getvariable\('\w+'\)::\w", info.sql))


@query
def test_tables_that_are_read_are_declared(info: QueryInfo) -> None:
    ctes = set(re.findall(r"^(?:with )?(\w+) as \(", info.sql, flags=re.M))
    sources = set(re.findall(r"\b(?:from|join|unpivot) (\w+)", bare(info.sql)))
    sources |= set(re.findall(r"^    from (\w+), (?=\w)", bare(info.sql), flags=re.M))
    assert sources & set(TABLES) == set(info.reads)
    assert sources - set(TABLES) - ctes - {"range", "unnest", "unpivot"} == set()


@query
def test_large_sums_are_cast(info: QueryInfo) -> None:
    result = info.sql[info.sql.rindex("\nselect\n") :]
    for line in bare(result).splitlines():
        if re.match(r"    (?:sum|count)\([^()]*\) as ", line):
            pytest.fail(f"a bare sum is HUGEINT: {line}")


def test_names_are_folders_and_files() -> None:
    root = find_queries()
    for info in QUERIES:
        topic, name = info.name.split("/")
        assert (root / topic / f"{name}.sql").is_file()


def test_coverage_counts_every_column_that_may_be_unknown() -> None:
    frame = pl.DataFrame([], schema=REQUESTS.polars_schema())
    with Session(threads=1) as session:
        session.create_table("requests", frame)
        fields = CATALOG.run(session, "coverage/fields").frame["field"].to_list()
    nullable = [column.name for column in REQUESTS.columns if column.null != "never null"]
    assert fields == sorted(nullable)
