"""Heads of columns for people, and columns that hold one value."""

from __future__ import annotations

import re

import pytest

from kvtrace.audit.record import Table
from kvtrace.report.headings import heading
from kvtrace.report.html import render_html
from kvtrace.report.texts import load_texts
from kvtrace.report.view import TableView, table_view
from tests.report.records import make_record

EN, ZH = load_texts("en"), load_texts("zh")


@pytest.mark.parametrize(
    ("column", "unit", "says"),
    [
        ("reusable_ratio_tokens", "ratio", "reusable, share of tokens"),
        ("ttft_p99_ms", "ms", "TTFT, P99"),
        ("isolation_usd_per_month", "USD", "isolation, $/month"),
        ("hits", "requests", "hits (requests)"),
        ("prompt_tokens", "tokens", "prompt tokens"),
        ("reusable_ratio_tokens_low", "ratio", "reusable, share of tokens, low"),
        ("option_id", "name", "option"),
        ("path_id", "name", "path"),
        ("path_bytes_per_s", "bytes/s", "rate of the path"),
        ("nobody_knows_this", "", "nobody knows this"),
    ],
)
def test_a_column_is_named_by_the_parts_of_its_name(column: str, unit: str, says: str) -> None:
    assert heading(EN, column, unit) == says


def test_heads_are_in_the_language_of_the_page() -> None:
    assert heading(ZH, "ttft_p99_ms", "ms") == "TTFT，P99"
    assert "占 token 之比" in heading(ZH, "reusable_ratio_tokens", "ratio")


def test_no_head_of_the_page_is_a_raw_name() -> None:
    html = render_html(make_record(), lang="en")
    heads = re.findall(r"<th scope=\"col\"[^>]*>([^<]*)", html)
    assert len(heads) > 40
    assert not [head for head in heads if "_" in head]


def view_of(rows: list[list[float | None]]) -> TableView:
    columns = ["slice", "instances", "rate", "hits"]
    return table_view(
        Table(
            id="made/x",
            title="X",
            query=None,
            columns=columns,
            units=["", "instances", "ratio", "requests"],
            meanings=[""] * 4,
            rows=[list(row) for row in rows],
        )
    )


def test_columns_of_one_value_are_found_unless_rows_are_few_or_cut() -> None:
    rows: list[list[float | None]] = [[1, 4, None, 5], [2, 4, None, 6], [3, 4, None, 5]]
    assert view_of(rows).constant == (1, 2)
    assert view_of(rows).varying == (0, 3)
    assert view_of(rows[:2]).constant == ()
    assert view_of([[i, 4, None, 5] for i in range(300)]).constant == ()


def test_a_column_of_one_value_is_said_once_and_copied_with_the_others() -> None:
    record = make_record()
    record.tables["reuse/made"] = Table(
        id="reuse/made",
        title="Made",
        query="reuse/made",
        columns=["slice", "instances", "hit_tokens"],
        units=["", "instances", "tokens"],
        meanings=["", "", ""],
        rows=[[1, 4, None], [2, 4, None], [3, 4, None]],
    )
    html = render_html(record, lang="en").replace("\u00a0", " ")
    table = html[html.index('<table id="table-reuse-made"') :]
    table, _, after = table.partition("</table>")
    assert re.findall(r'data-name="([^"]*)"', table) == ["slice"]
    assert 'data-constant="instances=4\nhit_tokens="' in table
    said = after[: after.index('<div class="tools">')]
    assert "The same in every row: instances 4." in said
    assert "Unknown in every row: hit tokens." in said
