"""docs/queries.md says what the query files say."""

from __future__ import annotations

from kvtrace.query.catalog import Catalog, load_catalog
from kvtrace.query.docs import render_query_docs
from kvtrace.query.header import parse_query
from tests.conftest import REPO

SQL = """-- name: demo/one
-- question: What?
-- grain: one row
-- params: size BIGINT = null
-- reads: requests
-- order: status
-- note: careful.
select
    status   -- name: ok | error
from requests
order by status
"""


def test_page_is_up_to_date() -> None:
    page = (REPO / "docs" / "queries.md").read_text(encoding="utf-8")
    assert page == render_query_docs(load_catalog()), "run scripts/gen_query_docs.py"


def test_page_documents_parameters_notes_and_columns() -> None:
    page = render_query_docs(Catalog({"demo/one": parse_query(SQL, source="x")}))
    assert "## demo\n" in page
    assert "- Parameters: `size` BIGINT (default null)" in page
    assert "- Notes: careful." in page
    assert "- Example: `kvtrace query DIR demo/one -p size=1000`" in page
    assert "| demo | [`demo/one`](#demoone) | What? |" in page
    assert "| `status` | name | ok \\| error |" in page


def test_examples_have_the_unit_of_their_parameter() -> None:
    sql = SQL.replace(
        "size BIGINT = null", "room_bytes DOUBLE = null, ttls_s DOUBLE[] = null, top DOUBLE = null"
    )
    page = render_query_docs(Catalog({"demo/one": parse_query(sql, source="x")}))
    assert "demo/one -p room_bytes=1e12 -p ttls_s=3600 -p top=0.5`" in page
