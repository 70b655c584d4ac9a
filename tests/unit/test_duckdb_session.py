"""A session reads the folders it was opened for and nothing else."""

from __future__ import annotations

import signal
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


def test_named_files_are_read_without_their_folder(tmp_path: Path) -> None:
    with Session(write_dirs=[tmp_path]) as writer:
        for name in ("seen", "hidden"):
            writer.write_parquet(pl.DataFrame({"a": [1]}), tmp_path / f"{name}.parquet")
    with Session(read_files=[tmp_path / "seen.parquet"]) as session:
        assert session.rows(f"from '{tmp_path}/seen.parquet'") == [{"a": 1}]
        with pytest.raises(ModelError):
            session.rows(f"from read_parquet('{tmp_path}/hidden.parquet')")


def test_sql_does_not_see_the_variables_of_the_program() -> None:
    frame = pl.DataFrame({"a": [1]})
    with Session() as session, pytest.raises(ModelError) as caught:
        session.frame("from frame")
    assert "frame does not exist" in (caught.value.cause or "")
    assert frame.height == 1


ENDLESS = "select sum(a.range * b.range) as n from range(10000000000) a, range(10000000) b"


def test_a_query_that_takes_too_long_is_stopped() -> None:
    with Session(threads=1) as session:
        with pytest.raises(ModelError, match=r"took longer than 0\.2 s") as caught:
            session.frame(ENDLESS, timeout_s=0.2)
        assert caught.value.code == "KVT-Q004"
        assert session.rows("select 1 as a") == [{"a": 1}]


def test_a_signal_stops_a_query() -> None:
    def stop(_signal: int, _frame: object) -> None:
        raise SystemExit(130)

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    try:
        with Session(threads=1) as session, pytest.raises(SystemExit):
            session.frame(ENDLESS)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_spilling_ends_at_its_bound() -> None:
    with Session(threads=1, memory_limit="40MiB", spill_limit="20MiB") as session:
        with pytest.raises(ModelError) as caught:
            session.frame("select range as n from range(20000000) order by hash(range)")
        assert "Out of Memory" in (caught.value.cause or "")


def test_rows_are_cut_where_asked() -> None:
    with Session() as session:
        assert session.frame("from range(10) order by 1", max_rows=2)["range"].to_list() == [0, 1]


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
