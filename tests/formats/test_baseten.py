"""Baseten traces: rows of Parquet and Arrow tables, hashes chained, prompts only where needed."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path

import polars as pl
import pytest

from kvtrace.errors import InputError
from kvtrace.ingest.formats.baseten import FORMATS
from kvtrace.ingest.pipeline import ingest_paths
from kvtrace.ingest.prompts import PromptHasher
from kvtrace.ingest.registry import all_formats
from kvtrace.ingest.sniff import recognise
from tests.formats.reading import DATA, read_bytes, sniffed

BASETEN = FORMATS[0]
PARQUET = (DATA / "baseten" / "good.parquet").read_bytes()
ARROW = (DATA / "baseten" / "good.arrow").read_bytes()
PROMPTS = (DATA / "baseten" / "prompts.parquet").read_bytes()
START_NS = 1_772_438_400 * 10**9


def parquet(rows: list[dict[str, object]], **options: int) -> bytes:
    stream = BytesIO()
    pl.DataFrame(rows).write_parquet(stream, **options)  # type: ignore[arg-type]
    return stream.getvalue()


@pytest.mark.parametrize("data", [PARQUET, ARROW])
def test_rows_of_a_table(data: bytes) -> None:
    reading = read_bytes(BASETEN, data, prompt_hasher=PromptHasher(b"key"))
    rows = reading.requests
    seconds = [((row.arrived_at_ns or 0) - START_NS) // 10**9 for row in rows]
    assert seconds == [0, 3, 4, 5]  # the row from before 1970 is left out
    assert [row.prompt_tokens for row in rows] == [130, 192, 130, 64]
    assert [row.output_tokens for row in rows] == [50, 40, 0, 1]
    assert [row.cached_tokens for row in rows] == [0, 128, None, 1]
    assert [row.ttft_ns for row in rows] == [120_000_000, 110_000_000, None, 1_000_000]
    assert [row.e2e_ns for row in rows] == [800_000_000, 700_000_000, None, 1_000_000]
    assert [row.status for row in rows] == ["ok", "ok", "cancelled", "ok"]
    # provided_session_id never repeats, poor_man_session_id does
    assert [row.session_id for row in rows] == ["1", "1", "2", None]
    assert [row.tenant for row in rows] == ["o1", "o1", "o2", None]
    first, second, third, fourth = (row.block_keys for row in rows)
    assert first is not None
    assert second is not None
    assert third is not None
    assert list(first) == list(second)[:2]
    assert not set(third) & set(second)  # 12 11: the ids recur behind another prefix
    assert fourth is None  # 16 tokens a block among 64
    context = reading.context
    assert (context.clock, context.block_ids) == ("utc", "content_chained")
    # 130 tokens have 2 ids, 192 have 3: floor of 64
    assert (context.found_block_size_tokens, context.partial_tail) == (64, "dropped")
    assert reading.note_codes == {"rows_left_out", "block_size_varies"}
    assert context.tally.used == 1


def test_prompts_become_keys_where_there_are_no_hashes() -> None:
    hasher = PromptHasher(b"key", block_tokens=4)
    reading = read_bytes(BASETEN, PROMPTS, prompt_hasher=hasher)
    first, second = (list(row.block_keys or []) for row in reading.requests)
    # 12 tokens are 3 blocks; "The same … then " has 46 bytes: two whole blocks of 16
    assert [a == b for a, b in zip(first, second, strict=True)] == [True, True, False]
    assert reading.note_codes == {"block_keys_from_bytes"}
    assert reading.context.clock == "relative"
    assert all(row.block_keys is None for row in read_bytes(BASETEN, PROMPTS).requests)


def test_many_rows_come_in_order() -> None:
    rows: list[dict[str, object]] = [
        {"timestamp_start_unix_ms": at, "prompt": "", "input_tokens": 1, "output_tokens": 1}
        for at in range(10_000)
    ]
    reading = read_bytes(BASETEN, parquet(rows, row_group_size=1000))
    assert [row.arrived_at_ns for row in reading.requests] == [at * 10**6 for at in range(10_000)]


def test_columns_of_other_types_are_unknown() -> None:
    row: dict[str, object] = {
        "timestamp_start_unix_ms": "7",
        "prompt": 5,
        "input_tokens": 3.0,
        "output_tokens": "many",
        "total_hashes": ["a"],
        "provided_session_id": 9,
        "block_size": "big",
    }
    reading = read_bytes(BASETEN, parquet([row, row]), prompt_hasher=PromptHasher(b"key"))
    (first, _second) = reading.requests
    assert (first.arrived_at_ns, first.prompt_tokens, first.output_tokens) == (7_000_000, 3, None)
    assert (first.session_id, first.block_keys) == ("9", None)


def test_table_without_a_usable_row_is_rejected() -> None:
    row: dict[str, object] = {
        "timestamp_start_unix_ms": -1,
        "input_tokens": 1,
        "output_tokens": 1,
    }
    assert read_bytes(BASETEN, parquet([row])).rejected == [(1, "no_usable_row")]
    assert read_bytes(BASETEN, b"PAR1 and no more").rejected == [(1, "damaged_table")]


def test_damage_behind_the_first_rows_is_said() -> None:
    rows: list[dict[str, object]] = [
        {"timestamp_start_unix_ms": at, "input_tokens": at, "output_tokens": 1}
        for at in range(200_000)
    ]
    data = bytearray(parquet(rows, row_group_size=50_000))
    middle = len(data) * 3 // 5
    data[middle : middle + 4000] = b"\xff" * 4000
    reading = read_bytes(BASETEN, bytes(data))
    outcomes = reading.context.tally.used + len(reading.rejected)
    assert outcomes == 1
    if reading.rows:
        assert "table_damaged" in reading.note_codes


def test_it_is_recognised() -> None:
    assert sniffed(all_formats(), PARQUET) == "baseten"
    assert sniffed(all_formats(), ARROW) == "baseten"


@pytest.mark.parametrize("kind", ["Parquet", "Arrow"])
def test_other_tables_are_refused_by_their_columns(kind: str) -> None:
    stream = BytesIO()
    frame = pl.DataFrame({"when": [1], "who": ["x"]})
    frame.write_parquet(stream) if kind == "Parquet" else frame.write_ipc(stream)
    found = recognise(stream.getvalue(), "a", formats=all_formats())
    assert found.format is None
    assert found.reason == (
        f"a {kind} file of no known format (columns: when, who);"
        " export the rows as JSON lines or CSV"
    )


def test_table_goes_through_the_pipeline(tmp_path: Path) -> None:
    path = tmp_path / "trace.parquet"
    path.write_bytes(PARQUET)
    ingested = ingest_paths([path], salt=b"salt")
    assert len(ingested.frames["requests"]) == 4
    assert [domain.block_size_tokens for domain in ingested.domains] == [64]
    assert ingested.files[0].evidence_grade == "A"
    other = tmp_path / "other.parquet"
    other.write_bytes(PARQUET[:-10])
    with pytest.raises(InputError) as refused:
        ingest_paths([other], salt=b"salt")
    assert "damaged, cut" in (refused.value.cause or "")
