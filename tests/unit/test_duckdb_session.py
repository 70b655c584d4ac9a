"""A session reads the folders it was opened for and nothing else."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from kvtrace.duckdb_session import Session
from kvtrace.errors import ModelError


def test_frames_go_in_and_out_unchanged(tmp_path: Path) -> None:
    frame = pl.DataFrame({"a": [1, None], "u": pl.Series([2**64 - 1, 0], dtype=pl.UInt64)})
    with Session(write_dirs=[tmp_path]) as session:
        session.write_parquet(frame, tmp_path / "it's.parquet")
        session.create_parquet_view("seen", [tmp_path / "it's.parquet"])
        assert session.frame("select * from seen").equals(frame)
        session.create_table("copied", frame)
        assert session.rows("select u from copied") == [{"u": 2**64 - 1}, {"u": 0}]


def test_other_files_cannot_be_read(tmp_path: Path) -> None:
    secret = tmp_path / "secret.csv"
    secret.write_text("a\n1\n")
    inside = tmp_path / "inside"
    inside.mkdir()
    with Session(read_dirs=[inside]) as session, pytest.raises(ModelError):
        session.rows(f"select * from read_csv('{secret}')")


def test_configuration_is_locked() -> None:
    with Session() as session, pytest.raises(ModelError):
        session.rows("set enable_external_access = true")


def test_parameters_are_bound_not_pasted() -> None:
    with Session() as session:
        session.set_variables({"x": "'; drop table t; --", "xs": [1, 2]})
        assert session.rows("select getvariable('x') as x, getvariable('xs') as xs") == [
            {"x": "'; drop table t; --", "xs": [1, 2]}
        ]
        with pytest.raises(ModelError):
            session.set_variables({"x = 1; drop": 1})


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("select 1", True),
        ("explain select 1", True),
        ("select 1; select 2", False),
        ("copy (select 1) to 'x'", False),
        ("attach 'x'", False),
        ("set threads = 1", False),
    ],
)
def test_only_one_select_or_explain_counts_as_a_query(sql: str, expected: bool) -> None:
    with Session() as session:
        assert session.is_single_select(sql) is expected


def test_a_failing_query_says_why() -> None:
    with Session() as session, pytest.raises(ModelError) as caught:
        session.rows("select nothing from nowhere")
    assert "nowhere" in (caught.value.cause or "")


def test_odd_types_come_out_readable() -> None:
    with Session() as session:
        session.create_table("t", pl.DataFrame({"n": [1, 2]}))
        (row,) = session.frame(
            "select sum(n) as total, 170141183460469231731687303715884105727::hugeint as huge, "
            "1.5::decimal(9, 2) as d, interval 1 day as i, union_value(a := 1) as u, "
            "'x'::blob as b, date '2024-01-02' as day from t"
        ).to_dicts()
    assert row == {
        "total": 3,
        "huge": "170141183460469231731687303715884105727",
        "d": 1.5,
        "i": "1 day",
        "u": "1",
        "b": "x",
        "day": "2024-01-02",
    }
