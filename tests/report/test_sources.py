"""Every table and chart of the report names the query, or the model, that made its numbers."""

from __future__ import annotations

import re

import pytest

from kvtrace.audit.record import AuditRecord
from kvtrace.query.catalog import load_catalog
from kvtrace.report.html import render_html
from kvtrace.report.view import slug
from tests.conftest import Analysed
from tests.report.records import make_record

_SOURCE = re.compile(r'<p class="source-line">(.*?)</p>', re.DOTALL)
_TABLE = re.compile(r'<table id="([^"]+)"')
OF_THE_RECORD = {
    *("table-settings", "table-inputs", "table-files", "table-sources"),
    *("table-options", "table-assumptions"),
}
"""Lists of the record itself: what was given, read, replayed (its heading says so) and assumed
(each row has its source)."""


@pytest.fixture(scope="module")
def records(samples: Analysed) -> list[AuditRecord]:
    """A record with everything, and that of the samples."""
    return [make_record(), samples.record]


def sources_by_table(html: str) -> dict[str, str]:
    """The source line behind each table, empty where there is none before the next table."""
    places = list(_TABLE.finditer(html))
    ends = [place.start() for place in places[1:]] + [len(html)]
    found = {}
    for place, end in zip(places, ends, strict=True):
        line = _SOURCE.search(html, place.end(), end)
        found[place[1]] = "" if line is None else line[1]
    return found


def test_every_table_names_its_query_or_its_model(records: list[AuditRecord]) -> None:
    for record in records:
        sources = sources_by_table(render_html(record, lang="en"))
        unnamed = {
            table
            for table, source in sources.items()
            if not source and table.startswith("table-") and table not in OF_THE_RECORD
        }
        assert unnamed == set()
        by_anchor = {f"table-{slug(one.id)}": one for one in record.tables.values()}
        shown = set(by_anchor) & set(sources)
        assert shown
        for anchor in shown:
            query = by_anchor[anchor].query
            if query is not None:
                assert f"<code>{query}</code>" in sources[anchor]


def test_every_chart_names_its_query_or_its_model(records: list[AuditRecord]) -> None:
    for record in records:
        html = render_html(record, lang="en")
        figures = re.findall(r"<figure .*?</figure>", html, re.DOTALL)
        assert len(figures) > 3
        for figure in figures:
            source = _SOURCE.search(figure)
            assert source is not None, figure[:300]
            assert source[1].strip()


def test_every_query_that_is_named_is_in_the_catalogue(records: list[AuditRecord]) -> None:
    names = set(load_catalog().names())
    record = records[1]
    assert {table.query for table in record.tables.values() if table.query is not None} <= names
