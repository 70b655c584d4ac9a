"""The logical digest: sensitive to what rows say, blind to where they stood."""

from __future__ import annotations

import polars as pl
import pytest

from kvtrace.schema.tables import REJECTS, TABLES
from kvtrace.store.digest import digest_tables


def requests(**columns: object) -> pl.DataFrame:
    base: dict[str, object] = {
        "request_key": [16, 40, 70],
        "source_id": [0, 0, 0],
        "is_headline": [True] * 3,
        "request_id_key": [900, None, 100],
        "session_key": [5, 5, 3],
        "arrived_at_ns": [10, 20, None],
        "clock": ["utc"] * 3,
        "prompt_tokens": [1, 2, None],
        "status": ["ok"] * 3,
        "is_benchmark": [False] * 3,
        "flags": [[], ["a", "b"], []],
    }
    schema = TABLES["requests"].polars_schema()
    rows = {**base, **columns}
    return pl.DataFrame({name: rows.get(name, [None] * 3) for name in schema}, schema=schema)


def digest(**columns: object) -> str:
    return digest_tables({"requests": requests(**columns)})


def test_keys_that_order_alike_and_hashes_that_repeat_alike_are_the_same() -> None:
    assert digest() == digest(request_key=[2**44, 2**44 + 1, 2**45])
    assert digest() == digest(request_id_key=[1, None, 2], session_key=[8, 8, 9])


def test_order_of_frames_rows_is_irrelevant() -> None:
    frame = requests()
    assert digest_tables({"requests": frame.reverse()}) == digest_tables({"requests": frame})


@pytest.mark.parametrize(
    "change",
    [
        {"prompt_tokens": [1, 2, 0]},  # null is not zero
        {"prompt_tokens": [2, 1, None]},
        {"session_key": [5, 6, 3]},
        {"request_id_key": [900, 900, 100]},
        {"status": ["ok", "ok", "error"]},
        {"flags": [["a"], ["b"], []]},
        {"flags": [[], ["ab"], []]},
        {"is_benchmark": [True, False, False]},
        {"llm": ["", None, None]},
        {"arrived_at_ns": [10, 21, None]},
    ],
)
def test_any_value_counts(change: dict[str, list[object]]) -> None:
    assert digest(**change) != digest()


def test_float_values_count() -> None:
    schema = TABLES["samples"].polars_schema()

    def samples(value: float | None) -> str:
        row: dict[str, list[object]] = {name: [None] for name in schema}
        row |= {"sample_key": [1], "source_id": [0], "metric": ["m"], "value": [value]}
        return digest_tables({"samples": pl.DataFrame(row, schema=schema)})

    assert len({samples(None), samples(0.0), samples(0.1), samples(0.1 + 1e-16)}) == 4


def test_rejects_are_told_by_reason_and_length_not_by_place() -> None:
    def rejects(file_id: int, line: int, reason: str) -> str:
        rows = [(file_id, line, line * 9, 5, reason, None, 77)]
        frame = pl.DataFrame(rows, schema=REJECTS.polars_schema(), orient="row")
        return digest_tables({"rejects": frame})

    assert rejects(0, 1, "negative") == rejects(3, 8, "negative")
    assert rejects(0, 1, "negative") != rejects(0, 1, "invalid_json")


def test_blocks_follow_the_rank_of_their_request() -> None:
    def tables(first: int, second: int) -> str:
        rows = [(first, 0, 0, 0, 1, 0), (second, 0, 0, 1, 2, 3)]
        schema = TABLES["blocks"].polars_schema()
        frame = pl.DataFrame(rows, schema=schema, orient="row")
        return digest_tables({"requests": requests(), "blocks": frame})

    assert tables(16, 40) != tables(40, 16)


def test_a_missing_table_is_not_an_empty_one() -> None:
    assert digest_tables({}) != digest_tables({"blocks": TABLES["blocks"].empty()})
