"""The reader of validation points: strict, with the line and the cause."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvtrace.cost.validation import read_points
from kvtrace.errors import InputError
from tests.unit.cost_validation.cases import csv_text, point, points

ROW = {"kind": "kv_load", "metric": "transfer_ms", "value": 2.5}


def test_a_row_is_read_with_its_units_and_empty_cells_are_null(tmp_path: Path) -> None:
    one = point(tmp_path, **ROW, tol_rel=0.2, tp=8, bytes=1_000, path="DRAM>PCIe5>HBM")
    assert (one.id, one.line, one.value, one.unit, one.tol_rel) == ("P0", 2, 2.5, "ms", 0.2)
    assert (one.tp, one.bytes, one.n_gpus, one.chunk_bytes) == (8, 1_000, None, None)
    assert (one.model, one.path) == ("", "DRAM>PCIe5>HBM")


def test_unknown_columns_are_left_alone_and_optional_ones_may_be_absent(tmp_path: Path) -> None:
    path = tmp_path / "few.csv"
    path.write_text("id,kind,metric,value,unit,colour\nA,decode,x,1.5,ms,red\n")
    (one,) = read_points(path)
    assert (one.id, one.value, one.model, one.tp) == ("A", 1.5, "", None)


def test_a_note_on_tokenisation_holds_for_all_rows_of_its_source(tmp_path: Path) -> None:
    inside = {**ROW, "source": "blog", "note": "idle, no (de)tokenisation"}
    found = points(tmp_path, inside, {**ROW, "source": "blog"}, {**ROW, "source": "other"})
    assert [one.is_untokenised for one in found] == [True, True, False]


@pytest.mark.parametrize(
    ("cells", "cause"),
    [
        ({"value": "fast"}, "`value` is `fast`, not a number"),
        ({"value": ""}, "`value` is empty"),
        ({"value": "nan"}, "`value` is `nan`, not a number"),
        ({"kind": ""}, "`kind` is empty"),
        ({"tp": "2.5"}, "`tp` is `2.5`, not a whole number from 0"),
        ({"bytes": "-1"}, "`bytes` is `-1`, not a whole number from 0"),
        ({"tol_rel": "-0.1"}, "`tol_rel` is `-0.1`, below zero"),
        ({"id": "P0"}, "id `P0` is taken by line 2"),
    ],
)
def test_a_bad_row_is_an_error_with_its_line(
    tmp_path: Path, cells: dict[str, object], cause: str
) -> None:
    with pytest.raises(InputError) as caught:
        points(tmp_path, ROW, {**ROW, **cells})
    assert caught.value.code == "KVT-C093"
    assert caught.value.cause == cause
    assert caught.value.where is not None
    assert caught.value.where.line == 3
    assert caught.value.hint


def test_a_row_with_a_cell_too_many_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "wide.csv"
    path.write_text(csv_text(ROW).rstrip("\n") + ",more\n")
    with pytest.raises(InputError, match="cannot be read") as caught:
        read_points(path)
    assert "more or fewer cells" in (caught.value.cause or "")


@pytest.mark.parametrize(
    ("text", "code", "cause"),
    [
        ("id,kind,metric,value\n", "KVT-C092", "no column unit"),
        ("id,kind,metric,value,unit,unit\n", "KVT-C092", "two columns unit"),
        ("", "KVT-C092", "no column id, kind, metric, value, unit"),
        ('id,kind,metric,value,unit\nA,"b"c,d,1,ms\n', "KVT-C091", "expected after"),
    ],
)
def test_a_file_that_is_none_is_an_error(tmp_path: Path, text: str, code: str, cause: str) -> None:
    path = tmp_path / "odd.csv"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        read_points(path)
    assert caught.value.code == code
    assert cause in (caught.value.cause or "")


def test_an_absent_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        read_points(tmp_path / "none.csv")
    assert caught.value.code == "KVT-C090"
