"""Query results in every mode, in narrow terminals, and with texts that would like to act."""

from __future__ import annotations

import io
import json

import polars as pl
import pytest

from kvtrace.api.query_results import QueryTable
from kvtrace.api.querymodes import to_csv, to_markdown
from kvtrace.query.catalog import QueryResult
from kvtrace.report.text.table import fitted_table

HOSTILE = "\x1b]0;owned\x07\x9b31m\u202e|`<b>\n=1"


def table(**columns: list[object]) -> QueryTable:
    frame = pl.DataFrame(columns, strict=False)
    names = tuple(columns)
    return QueryTable(
        "demo/one", QueryResult(names, ("u",) * len(names), ("m",) * len(names), frame)
    )


def test_csv_keeps_null_apart_from_empty_and_numbers_exact() -> None:
    made = table(a=[1, -2, None], b=[0.1, None, 1e300], c=["x", "", None], d=[True, False, None])
    assert made.to_csv().splitlines() == [
        "a,b,c,d",
        "1,0.1,x,true",
        '-2,,"",false',
        ",1e+300,,",
    ]


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "＝1"])
def test_csv_texts_never_start_a_formula(text: str) -> None:
    field = to_csv(table(c=[text]).result).split("\n", 1)[1].strip('"')
    assert field.startswith("'")


def test_csv_quotes_what_would_cut_a_field() -> None:
    assert to_csv(table(c=['a,"b"\nc']).result) == 'c\n"a,""b""\nc"'


def test_csv_and_json_read_back() -> None:
    made = table(c=[HOSTILE, "é"], n=[2**62, 1])
    read = pl.read_csv(io.StringIO(made.to_csv()))
    assert read["n"].to_list() == [2**62, 1]
    rows = json.loads(made.to_json())["rows"]
    assert [row["c"] for row in rows] == [HOSTILE, "é"]


@pytest.mark.parametrize("mode", ["table", "json", "csv", "markdown"])
def test_no_mode_of_text_can_act_on_a_terminal(mode: str) -> None:
    text = table(**{HOSTILE: [HOSTILE]}).rendered(mode, width=40).decode()  # type: ignore[arg-type]
    assert not any(bad in text for bad in "\x1b\x07\x9b\u202e")


def test_markdown_texts_are_code_in_one_cell() -> None:
    lines = to_markdown(table(c=["a|b", "`x`", "", None, "<b>"], n=[1.5, 2, 3, 4, None]).result)
    assert lines.splitlines() == [
        "| `c` | `n` |",
        "| --- | ---: |",
        "| `a\\|b` | 1.5 |",
        "| `` `x` `` | 2 |",
        "|  | 3 |",
        "| unknown | 4 |",
        "| `<b>` | unknown |",
    ]


def test_parquet_holds_the_rows_and_what_the_columns_mean() -> None:
    data = table(a=[1, None], c=["x", HOSTILE]).rendered("parquet")
    assert pl.read_parquet(io.BytesIO(data)).rows() == [(1, "x"), (None, HOSTILE)]
    about = json.loads(pl.read_parquet_metadata(io.BytesIO(data))["kvtrace"])
    assert about["query"] == "demo/one"
    assert about["columns"][0] == {"name": "a", "unit": "u", "meaning": "m"}


def test_a_table_that_fits_is_one_table() -> None:
    text = fitted_table(("name", "n"), [("a", 1), ("b", 20)], 20)
    assert text.splitlines() == ["name   n", "----  --", "a      1", "b     20"]


def test_a_wide_table_comes_in_bands_behind_its_first_column() -> None:
    header = ("key", "first_number", "second_number", "third_number")
    text = fitted_table(header, [("a", 1, 2, 3), ("b", 4, 5, 6)], 34)
    bands = [band.splitlines() for band in text.split("\n\n")]
    assert [band[0].split() for band in bands] == [
        ["key", "first_number", "second_number"],
        ["key", "third_number"],
    ]
    assert [band[3].split() for band in bands] == [["b", "4", "5"], ["b", "6"]]
    assert all(len(line) <= 34 for line in text.splitlines())


def test_a_single_wide_row_stands_upright() -> None:
    header = [f"column_{i}" for i in range(8)]
    assert fitted_table(header, [range(8)], 40).splitlines()[7] == "column_7  7"


def test_texts_that_fit_nowhere_make_each_row_a_block_that_wraps() -> None:
    text = fitted_table(("name", "meaning"), [("a", "word " * 20), ("b", "short")], 30)
    lines = text.splitlines()
    assert lines[0] == "row 1"
    assert "row 2" in lines
    assert all(len(line) <= 30 for line in lines)
    assert " ".join(text.split()).count("word") == 20


def test_wide_characters_keep_columns_straight() -> None:
    text = fitted_table(("name", "n"), [("模型", 1), ("ab", 2)], None)
    assert text.splitlines()[2:] == ["模型  1", "ab    2"]
