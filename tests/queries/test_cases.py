"""Every query gives the rows that its YAML cases work out by hand."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kvtrace.duckdb_session import Session
from kvtrace.query.catalog import Catalog, load_catalog
from tests.queries.cases import Case, cte_sql, fill, load_cases

ALL = load_cases()


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return load_catalog()


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    with Session(threads=1) as opened:
        yield opened


def close(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows whose floats compare within rounding, but never with null."""
    return [
        {key: pytest.approx(v, rel=1e-12) if isinstance(v, float) else v for key, v in row.items()}
        for row in rows
    ]


@pytest.mark.parametrize("case", ALL, ids=str)
def test_rows_are_as_expected(case: Case, catalog: Catalog, session: Session) -> None:
    fill(session, case.spec)
    frame = catalog.run(session, case.query, case.spec.get("params")).frame
    expected = case.spec["rows"]
    if isinstance(expected, int):
        assert len(frame) == expected
        return
    columns = case.spec.get("columns", frame.columns)
    assert frame.select(columns).to_dicts() == close(expected)


WITH_CTES = [(case, cte) for case in ALL for cte in case.spec.get("ctes", {})]


@pytest.mark.parametrize(("case", "cte"), WITH_CTES, ids=str)
def test_idea_of_the_query_is_as_expected(
    case: Case, cte: str, catalog: Catalog, session: Session
) -> None:
    fill(session, case.spec)
    info = catalog.describe(case.query)
    params = case.spec.get("params", {})
    session.set_variables({param.name: params.get(param.name) for param in info.params})
    expected = case.spec["ctes"][cte]
    assert session.rows(cte_sql(info.sql, cte, list(expected[0]))) == close(expected)


def test_every_query_has_cases_an_empty_one_and_one_for_each_idea(catalog: Catalog) -> None:
    by_query: dict[str, list[Case]] = {name: [] for name in catalog.names()}
    for case in ALL:
        by_query[case.query].append(case)
    for name, cases in by_query.items():
        assert any("requests" not in c.spec and "samples" not in c.spec for c in cases), name
        has_ctes = "\nwith " in catalog.describe(name).sql
        assert any("ctes" in case.spec for case in cases) == has_ctes, name
