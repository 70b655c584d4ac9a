"""The Mooncake family: dialects, bad values, block-size inference, clock."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import polars as pl
import pytest

from kvtrace.errors import InputError
from kvtrace.ingest.formats.mooncake import FORMATS
from kvtrace.ingest.pipeline import Ingested, ingest_paths
from kvtrace.ingest.prompts import PromptHasher
from kvtrace.ingest.readfile import IngestSettings
from kvtrace.ingest.sniff import build_head
from tests.formats.reading import read_bytes

MS = 1_000_000
S = 1_000 * MS


def ingest(path: Path, **settings: int) -> Ingested:
    return ingest_paths([path], settings=IngestSettings(**settings), salt=b"tests")  # type: ignore[arg-type]


def write(path: Path, rows: Iterable[dict[str, object] | str]) -> Path:
    lines = [entry if isinstance(entry, str) else json.dumps(entry) for entry in rows]
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    return path


def trace(tmp_path: Path, *rows: dict[str, object] | str) -> Path:
    return write(tmp_path / "trace.jsonl", rows)


def plain(tokens: int, blocks: int, at_ms: float = 0, **more: object) -> dict[str, object]:
    ids = list(range(blocks))
    return {
        "timestamp": at_ms,
        "input_length": tokens,
        "output_length": 5,
        "hash_ids": ids,
        **more,
    }


# Rows that only 512 fits: ceil(512/512) = 1, ceil(513/512) = 2, ceil(1025/512) = 3
TELLING = (plain(512, 1), plain(513, 2), plain(1025, 3))


def codes(result: Ingested) -> set[str]:
    return {note.code for note in result.notes}


def only(result: Ingested, column: str) -> object:
    (value,) = result.frames["requests"][column].to_list()
    return value


def test_plain_rows_give_lengths_times_and_blocks(tmp_path: Path) -> None:
    result = ingest(trace(tmp_path, *TELLING, plain(600, 2, at_ms=3000)))
    rows = result.frames["requests"]
    assert rows["prompt_tokens"].to_list() == [512, 513, 1025, 600]
    assert rows["output_tokens"].to_list() == [5] * 4
    assert rows["arrived_at_ns"].to_list() == [0, 0, 0, 3 * S]
    assert rows["cached_tokens"].null_count() == 4
    entry = result.files[0]
    assert (entry.format, entry.evidence_grade, entry.clock) == ("mooncake", "A", "relative")
    assert entry.clock_resolution_ns == 3 * S
    # Tails: 512 is whole, 513 − 512 = 1, 1025 − 1024 = 1, 600 − 512 = 88
    assert result.frames["blocks"]["tail_tokens"].to_list() == [0, 1, 1, 88]
    assert (result.totals.block_refs, result.totals.distinct_blocks) == (8, 3)


def test_block_size_is_inferred_with_its_reason(tmp_path: Path) -> None:
    domain = ingest(trace(tmp_path, *TELLING)).domains[0]
    assert (domain.block_size_tokens, domain.partial_tail, domain.scope) == (512, "counted", "file")
    assert domain.block_size_reason == (
        "inferred: ceil(input_length / 512) equals the number of block ids in 100.0% of 3 rows, "
        "and no other size fits"
    )


@pytest.mark.parametrize("size", [16, 32, 64, 784])
def test_other_engines_block_sizes_are_found(tmp_path: Path, size: int) -> None:
    rows = [plain(tokens, -(-tokens // size)) for tokens in (5000, 5001, 7777, 9999, 12_345)]
    domain = ingest(trace(tmp_path, *rows)).domains[0]
    assert (domain.block_size_tokens, domain.partial_tail) == (size, "counted")


def test_dropped_tail_is_told_by_floor(tmp_path: Path) -> None:
    rows = [plain(tokens, tokens // 64) for tokens in (5001, 7777, 9999, 63)]
    result = ingest(trace(tmp_path, *rows))
    assert result.domains[0].partial_tail == "dropped"
    assert result.domains[0].block_size_tokens == 64
    assert result.frames["blocks"]["tail_tokens"].to_list() == [0, 0, 0]  # none for 63 tokens


def test_whole_blocks_only_have_no_tail(tmp_path: Path) -> None:
    rows = [plain(blocks * 64, blocks) for blocks in (3, 101, 999)]
    assert ingest(trace(tmp_path, *rows)).domains[0].partial_tail == "none"


def test_one_odd_row_in_a_hundred_is_flagged_and_loses_its_blocks(tmp_path: Path) -> None:
    rows = [*[plain(1025, 3)] * 66, *[plain(513, 2)] * 33, plain(1024, 1)]
    result = ingest(trace(tmp_path, *rows))
    assert result.domains[0].block_size_tokens == 512
    assert result.frames["requests"]["flags"].to_list()[-1] == ["block_length_mismatch"]
    assert result.totals.block_refs == 66 * 3 + 33 * 2
    assert result.totals.prompt_tokens == 66 * 1025 + 33 * 513 + 1024


def test_size_that_several_fit_is_not_guessed(tmp_path: Path) -> None:
    result = ingest(trace(tmp_path, plain(512, 1)))
    assert result.files[0].evidence_grade == "L"
    assert (result.totals.block_refs, result.domains) == (None, [])
    note = next(note for note in result.notes if note.code == "block_size_unknown")
    assert "257 and more tokens fit" in note.message
    assert "--block-size N" in note.message


def test_size_that_none_fits_is_not_guessed(tmp_path: Path) -> None:
    # AIPerf's documentation shows 655 tokens with 3 ids; beside 10 000 tokens with 2 nothing fits.
    result = ingest(trace(tmp_path, plain(655, 3), plain(10_000, 2)))
    assert result.files[0].evidence_grade == "L"
    assert "block_size_unknown" in codes(result)
    assert result.totals.prompt_tokens == 10_655


def test_stated_size_is_taken_and_checked(tmp_path: Path) -> None:
    fitting = ingest(trace(tmp_path, plain(500, 5), plain(500, 5)), block_size_tokens=100)
    assert fitting.domains[0].block_size_tokens == 100
    assert fitting.domains[0].block_size_reason == "given; 100.0% of 2 rows agree"
    odd = ingest(trace(tmp_path, plain(500, 5), plain(500, 3)), block_size_tokens=100)
    assert "block_size_disagrees" in codes(odd)
    assert odd.totals.block_refs == 5


def test_rows_without_ids_are_lengths_only(tmp_path: Path) -> None:
    row: dict[str, object] = {"timestamp": 0, "input_length": 7, "output_length": 1}
    result = ingest(trace(tmp_path, row))
    assert result.files[0].evidence_grade == "L"
    assert "no_block_ids" in codes(result)
    assert result.totals.block_refs is None


def test_same_line_twice_is_two_requests(tmp_path: Path) -> None:
    assert ingest(trace(tmp_path, *TELLING, TELLING[0])).totals.requests == 4


def test_ids_in_the_row_become_request_session_turn_and_model(tmp_path: Path) -> None:
    row = plain(1, 1, request_id="r", session_id=17, turn=3, model="m")
    result = ingest(trace(tmp_path, row))
    assert only(result, "turn") == 3
    assert only(result, "llm") == "m"
    assert only(result, "request_id_key") is not None
    assert only(result, "session_key") is not None


def test_aiperf_turns_with_a_delay_have_no_arrival(tmp_path: Path) -> None:
    first = {"session_id": "s", "timestamp": 100.5, "input_length": 9, "output_length": 1}
    later = {"session_id": "s", "delay": 50, "input_length": 20, "output_length": 1}
    result = ingest(trace(tmp_path, first, later))
    rows = result.frames["requests"]
    assert rows["arrived_at_ns"].to_list() == [0, None]
    assert rows["session_key"].n_unique() == 1
    assert "arrival_unknown" in codes(result)


@pytest.mark.parametrize(
    # 10 bytes, and the 14 of "<>\nthe secret\n", at 4 a token; a payload that is a list is unknown
    ("key", "tokens"),
    [("text_input", 3), ("messages", 4), ("payload", None)],
)
def test_texts_are_never_stored(tmp_path: Path, key: str, tokens: int | None) -> None:
    text: object = "the secret" if key == "text_input" else [{"content": "the secret"}]
    result = ingest(trace(tmp_path, {"timestamp": 0, key: text, "output_length": 4}))
    assert only(result, "prompt_tokens") == tokens
    assert only(result, "output_tokens") == 4
    assert all("secret" not in str(frame.rows()) for frame in result.frames.values())


def test_fractions_of_a_millisecond_are_kept(tmp_path: Path) -> None:
    result = ingest(trace(tmp_path, plain(1, 1, at_ms=0.5), plain(1, 1, at_ms=2.125)))
    assert result.frames["requests"]["arrived_at_ns"].to_list() == [0, 1_625_000]


def test_epoch_milliseconds_are_an_absolute_clock(tmp_path: Path) -> None:
    result = ingest(trace(tmp_path, plain(1, 1, at_ms=1_772_438_400_250), plain(1, 1, at_ms=5)))
    assert result.files[0].clock == "utc"
    arrivals = result.frames["requests"]["arrived_at_ns"].to_list()
    assert arrivals == [1_772_438_400_250 * MS, None]
    assert result.frames["requests"]["flags"].to_list()[1] == ["clock_disagrees"]
    assert "clock_disagrees" in codes(result)


def test_rows_without_any_time_have_only_an_order(tmp_path: Path) -> None:
    result = ingest(trace(tmp_path, {"input_length": 10, "output_length": 1}))
    assert result.files[0].clock == "order"
    assert only(result, "arrived_at_ns") is None


def test_unit_of_time_is_said_to_be_assumed(tmp_path: Path) -> None:
    assert "timestamp_unit_assumed" in codes(ingest(trace(tmp_path, *TELLING)))


def test_rows_out_of_order_are_put_in_order_of_time_stably(tmp_path: Path) -> None:
    ids_and_times = ((7, 3000), (5, 1000), (6, 2000), (7, 2000), (4, 0))
    rows = [plain(512, 0, at_ms=at) | {"hash_ids": [key]} for key, at in ids_and_times]
    result = ingest(trace(tmp_path, *rows), block_size_tokens=512)
    # First appearance in time: 4, 5, 6, 7; the first line (at 3 s) finds what the fourth left.
    assert result.frames["keys"]["chained_hash"].to_list() == [4, 5, 6, 7]
    assert result.frames["blocks"]["start_block"].to_list() == [3, 1, 2, 3, 0]
    assert "out_of_order" in codes(result)


def test_ids_above_int64_are_kept_whole(tmp_path: Path) -> None:
    top = 2**64 - 1
    rows = [*TELLING, plain(600, 0) | {"hash_ids": [top, 12]}]
    keys = ingest(trace(tmp_path, *rows)).frames["keys"]["chained_hash"]
    assert keys.to_list() == [0, 1, 2, top, 12]
    assert keys.dtype == pl.UInt64


def test_numeric_text_is_taken_and_flagged(tmp_path: Path) -> None:
    row = {"timestamp": 4, "input_length": "700", "output_length": "12", "hash_ids": ["4", "5"]}
    result = ingest(trace(tmp_path, row, *TELLING))
    first = result.frames["requests"].row(0, named=True)
    assert (first["prompt_tokens"], first["output_tokens"]) == (700, 12)
    assert first["flags"] == ["number_was_text"]
    assert result.frames["keys"]["chained_hash"].to_list() == [0, 1, 2, 4, 5]


def test_zero_tokens_are_kept_and_flagged(tmp_path: Path) -> None:
    result = ingest(trace(tmp_path, plain(0, 0), *TELLING))
    assert result.frames["requests"]["flags"].to_list()[0] == ["zero_token_prompt"]
    assert result.domains[0].block_size_tokens == 512


def test_whole_floats_are_numbers_of_tokens(tmp_path: Path) -> None:
    row = '{"timestamp": 0, "input_length": 512.0, "output_length": 10.0}'
    assert only(ingest(trace(tmp_path, row)), "prompt_tokens") == 512


@pytest.mark.parametrize(
    ("line", "reason", "detail"),
    [
        ('{"input_length": -5, "hash_ids": []}', "negative", "input_length is negative"),
        ('{"input_length": 5, "output_length": -1}', "negative", "output_length is negative"),
        ('{"input_length": 5, "timestamp": -1}', "negative", "timestamp is negative"),
        ('{"input_length": NaN}', "not_a_number", "NaN or Infinity"),
        ('{"input_length": "nan"}', "not_a_number", "input_length is not finite"),
        ('{"input_length": 10.5}', "not_whole", "input_length is not a whole number"),
        ('{"input_length": 9223372036854775808}', "out_of_range", "input_length is out of range"),
        ('{"input_length": 5, "timestamp": 1e300}', "out_of_range", "timestamp is out of range"),
        ('{"input_length": 5, "hash_ids": [1, null]}', "null_block_id", None),
        ('{"input_length": 5, "hash_ids": [18446744073709551616]}', "out_of_range", None),
        ('{"input_length": 5, "hash_ids": [-1]}', "negative", None),
        ('{"input_length": 5, "hash_ids": [1.5]}', "wrong_type", None),
        ('{"input_length": 5, "hash_ids": {"a": 1}}', "wrong_type", "hash_ids is an object"),
        ('{"input_length": true}', "wrong_type", "input_length is a boolean"),
        ('{"input_length": "many"}', "wrong_type", "input_length is text"),
        ('{"hash_ids": [1]}', "missing_field", "input_length"),
        ('{"comment": "x"}', "no_known_field", None),
        ('{"chat_id": 5, "input_length": 16, "hash_ids": [9]}', "other_format", None),
        ("[1, 2]", "not_an_object", None),
        ('{"input_length": 5,, }', "invalid_json", None),
        ('{"input_length": 5, "x": ' + "[" * 100_000 + "]" * 100_000 + "}", "too_deep", None),
    ],
)
def test_bad_rows_are_rejected_by_field_and_cause(
    tmp_path: Path, line: str, reason: str, detail: str | None
) -> None:
    result = ingest(trace(tmp_path, *TELLING, line))
    reject = result.frames["rejects"].row(0, named=True)
    assert (reject["reason"], reject["line"]) == (reason, 4)
    assert detail is None or reject["detail"] == detail
    assert result.totals.requests == 3


def test_invalid_utf8_is_rejected(tmp_path: Path) -> None:
    path = trace(tmp_path, *TELLING)
    path.write_bytes(path.read_bytes() + b'{"input_length": 5, "model": "\xff"}\n')
    assert ingest(path).files[0].rejected_by_reason == {"invalid_utf8": 1}


def test_line_that_the_file_ends_in_is_called_truncated(tmp_path: Path) -> None:
    path = trace(tmp_path, *TELLING)
    path.write_text(path.read_text() + '{"timestamp": 3, "input_le')
    assert ingest(path).files[0].rejected_by_reason == {"truncated": 1}


def test_deltas_are_refused_with_the_reason(tmp_path: Path) -> None:
    rows = [
        {"session_id": "s", "timestamp": 0, "input_length": 4, "output_length": 2, "hash_ids": [1]},
        {"session_id": "s", "delay": 5, "input_length": 2, "output_length": 1, "hash_ids": [2]},
    ]
    with pytest.raises(InputError) as caught:
        ingest(trace(tmp_path, *rows))
    assert "mooncake-delta" in (caught.value.cause or "")


def test_cumulative_sessions_are_not_taken_for_deltas(tmp_path: Path) -> None:
    rows = [
        {"session_id": "s", "timestamp": 0, "input_length": 4, "output_length": 2, "hash_ids": [1]},
        {"session_id": "s", "delay": 5, "input_length": 9, "output_length": 1, "hash_ids": [1, 2]},
    ]
    assert ingest(trace(tmp_path, *rows)).totals.requests == 2


def test_bailian_rows_are_not_taken_for_mooncake(tmp_path: Path) -> None:
    bailian = {"chat_id": 1, "parent_chat_id": -1, "timestamp": 0.5, "input_length": 16}
    row = {**bailian, "output_length": 1, "type": "text", "turn": 1, "hash_ids": [3]}
    assert ingest(trace(tmp_path, row)).files[0].format == "bailian"


@pytest.mark.shared
def test_conversation_trace_has_its_known_totals(shared_dir: Path) -> None:
    result = ingest(shared_dir / "traces" / "mooncake_conversation.jsonl.zst")
    totals = result.totals
    assert totals.requests == 12_031
    assert totals.prompt_tokens == 144_793_823
    assert totals.output_tokens == 4_122_048
    assert (totals.block_refs, totals.distinct_blocks) == (288_500, 182_790)
    assert totals.block_size_tokens == 512
    assert totals.cached_tokens is None
    entry = result.files[0]
    assert (entry.clock, entry.clock_resolution_ns) == ("relative", 3 * S)
    assert (entry.rows_in, entry.used, entry.rejected, entry.blank) == (12_031, 12_031, 0, 0)
    # 276 491 of the references are to full blocks, by the figures.
    tails = result.frames["blocks"].filter(pl.col("tail_tokens") > 0).height
    assert totals.block_refs is not None
    assert totals.block_refs - tails == 276_491


@pytest.mark.shared
def test_head_of_the_conversation_trace(shared_dir: Path) -> None:
    result = ingest(shared_dir / "trace_excerpts" / "mooncake_conversation_head.jsonl")
    assert (result.totals.requests, result.totals.block_size_tokens) == (40, 512)
    assert (result.totals.prompt_tokens, result.totals.output_tokens) == (506_280, 14_962)


@pytest.mark.shared
@pytest.mark.parametrize(
    ("name", "requests", "rejected", "prompt_tokens"),
    [
        ("array.jsonl", 2, 0, 1024),
        ("wrong_ext.json", 2, 0, 1024),
        ("one_line.jsonl", 1, 0, 512),
        ("no_final_newline.jsonl", 2, 0, 1024),
        ("out_of_order.jsonl", 5, 0, 2560),
        ("mixed_schema.jsonl", 3, 2, 1024),
        ("bad_tokens.jsonl", 6, 5, 512 + 0 + 700 + 600 + 1024 + 512),
    ],
)
def test_nasty_files_of_the_family(
    shared_dir: Path, name: str, requests: int, rejected: int, prompt_tokens: int
) -> None:
    result = ingest(shared_dir / "trace_excerpts" / "nasty" / name)
    assert result.files[0].format == "mooncake"
    assert (result.totals.requests, result.totals.rejected) == (requests, rejected)
    assert result.totals.prompt_tokens == prompt_tokens


@pytest.mark.shared
def test_nasty_values_with_the_block_size_stated(shared_dir: Path) -> None:
    path = shared_dir / "trace_excerpts" / "nasty" / "bad_tokens.jsonl"
    result = ingest(path, block_size_tokens=512)
    assert result.files[0].rejected_by_reason == {
        "negative": 1,
        "not_a_number": 1,
        "not_whole": 1,
        "null_block_id": 1,
        "out_of_range": 1,
    }
    flags = result.frames["requests"]["flags"].to_list()
    assert flags == [
        [],
        ["zero_token_prompt"],
        ["number_was_text"],
        [],
        ["block_length_mismatch"],
        [],
    ]
    assert 2**64 - 1 in result.frames["keys"]["chained_hash"].to_list()
    assert result.totals.block_refs == 1 + 2 + 2


@pytest.mark.shared
def test_nasty_folder_never_fails(shared_dir: Path) -> None:
    refused: dict[str, InputError] = {}
    for path in sorted((shared_dir / "trace_excerpts" / "nasty").iterdir()):
        try:
            ingest(path)
        except InputError as error:
            refused[path.name] = error
    assert {"empty.jsonl", "only_newlines.jsonl", "junk.bin"} <= set(refused)
    assert {error.code for error in refused.values()} <= {"KVT-I002", "KVT-I003"}
    assert all(name in str(error.cause) for name, error in refused.items() if name != "rotated")


# Clock: units by magnitude, the median decides


def timed(tmp_path: Path, *stamps: float | str) -> Ingested:
    rows = [
        f'{{"timestamp": {at}, "input_length": 1, "output_length": 1, "hash_ids": [0]}}'
        for at in stamps
    ]
    return ingest(trace(tmp_path, *rows))


def arrivals(result: Ingested) -> list[int | None]:
    return result.frames["requests"]["arrived_at_ns"].to_list()


@pytest.mark.parametrize(
    ("stamps", "unit"),
    [
        ((1_714_521_600, 1_714_521_998), "seconds"),
        ((1_714_521_600_000, 1_714_521_998_000), "milliseconds"),
        ((1_714_521_600_000_000, 1_714_521_998_000_000), "microseconds"),
        ((1_714_521_600_000_000_000, 1_714_521_998_000_000_000), "ns"),
    ],
)
def test_epoch_unit_is_told_by_magnitude(
    tmp_path: Path, stamps: tuple[int, int], unit: str
) -> None:
    result = timed(tmp_path, *stamps)
    assert arrivals(result) == [1_714_521_600 * S, 1_714_521_998 * S]
    assert result.files[0].clock == "utc"
    reason = f"timestamp is in the range of epoch {unit}; the first is 2024-05-01 00:00 UTC"
    assert result.files[0].clock_reason == reason


def test_fractions_of_epoch_seconds_are_exact_as_printed(tmp_path: Path) -> None:
    result = timed(tmp_path, "1714521600.123456", "1714521600.25")
    assert arrivals(result) == [1_714_521_600_123_456_000, 1_714_521_600_250_000_000]


def test_rows_in_another_unit_are_read_by_their_own_magnitude(tmp_path: Path) -> None:
    result = timed(tmp_path, 1_714_521_600, 1_714_521_601, 1_714_521_602_500)
    assert arrivals(result)[2] == 1_714_521_602_500 * MS
    (note,) = [one for one in result.notes if one.code == "mixed_timestamp_units"]
    assert note.message.startswith("1 of 3 timestamps")
    assert note.severity == "warning"


def test_the_median_and_not_the_first_row_decides(tmp_path: Path) -> None:
    result = timed(tmp_path, 5, 1_714_521_600, 1_714_521_601)
    assert arrivals(result) == [None, 1_714_521_600 * S, 1_714_521_601 * S]
    assert result.frames["requests"]["flags"].to_list()[0] == ["clock_disagrees"]


def test_a_week_of_milliseconds_is_no_date(tmp_path: Path) -> None:
    # 6.048e8 ms is a week; the values spread from 0, so they are not dates of 1973 to 1989.
    stamps = [hour * 3_600_000 for hour in range(0, 169, 8)]
    result = timed(tmp_path, *stamps)
    assert result.files[0].clock == "relative"
    assert arrivals(result) == [at * MS for at in stamps]
    assert "clock_disagrees" not in codes(result)


@pytest.mark.parametrize("stamps", [(0.5, 2.25, 90.125), (0, 1, 2)])
def test_times_that_look_like_seconds_are_ms_with_a_warning(
    tmp_path: Path, stamps: tuple[float, ...]
) -> None:
    result = timed(tmp_path, *stamps)
    assert arrivals(result)[2] == round((stamps[2] - stamps[0]) * MS)
    (note,) = [one for one in result.notes if one.code == "timestamp_unit_assumed"]
    assert note.severity == "warning"
    assert "1 000 times too high" in note.message


def test_three_requests_in_an_hour_raise_no_doubt_about_the_unit(tmp_path: Path) -> None:
    result = timed(tmp_path, 0, 1_800_000, 3_600_000)
    (note,) = [one for one in result.notes if one.code == "timestamp_unit_assumed"]
    assert note.severity == "info"


def test_many_fractions_at_an_absurd_rate_are_guidellms_seconds(tmp_path: Path) -> None:
    # 40 rows in 19.5 s; as ms that would be 2 051 requests a second with stamps in µs
    stamps = [3600 + half / 2 for half in range(40)]
    result = timed(tmp_path, *stamps)
    assert arrivals(result) == [half * S // 2 for half in range(40)]
    assert "seconds" in str(result.files[0].clock_reason)
    (note,) = [one for one in result.notes if one.code == "timestamp_unit_assumed"]
    assert note.severity == "warning"
    assert "1 000 times too low" in note.message


@pytest.mark.parametrize("count", [19, 40])
def test_few_rows_or_a_sane_rate_stay_milliseconds(tmp_path: Path, count: int) -> None:
    step_ms = 0.5 if count == 19 else 12.5  # 2 000 requests a second, and 80
    result = timed(tmp_path, *[step_ms * number for number in range(count)])
    assert arrivals(result)[-1] == round((count - 1) * step_ms * MS)


def test_turns_with_a_delay_have_an_order_and_no_arrival(tmp_path: Path) -> None:
    first = {"session_id": "a", "input_length": 300, "output_length": 40}
    second = {"session_id": "a", "delay": 2.5, "input_length": 450, "output_length": 20}
    result = ingest(trace(tmp_path, first, second))
    assert result.files[0].clock == "order"
    rows = result.frames["requests"]
    assert rows["prompt_tokens"].to_list() == [300, 450]
    assert rows["session_key"].n_unique() == 1
    (note,) = [one for one in result.notes if one.code == "arrival_unknown"]
    assert "2 rows have no timestamp; 1 of them are turns" in note.message


def test_rows_of_aiperf_with_a_payload_are_recognised_and_chats_are_not(tmp_path: Path) -> None:
    row: dict[str, object] = {"payload": {"prompt": "the secret"}, "timestamp": 1000}
    result = ingest(trace(tmp_path, row))
    assert (result.files[0].format, result.files[0].used) == ("mooncake", 1)
    head = build_head(json.dumps({**row, "user": "somebody"}).encode(), "sample")
    assert FORMATS[0].sniff(head) is None


# Block size: an interval a row


@pytest.mark.parametrize(("size", "tail"), [(48, "counted"), (96, "dropped"), (1000, "counted")])
def test_any_size_is_found_if_it_is_the_only_one(tmp_path: Path, size: int, tail: str) -> None:
    lengths = range(size, 100 * size, size // 2 + 1)
    rows = [plain(n, n // size if tail == "dropped" else -(-n // size)) for n in lengths]
    domain = ingest(trace(tmp_path, *rows)).domains[0]
    assert (domain.block_size_tokens, domain.partial_tail) == (size, tail)
    assert "no other size fits" in domain.block_size_reason


def test_range_that_is_left_is_named(tmp_path: Path) -> None:
    # ceil: 100 / 2 = 50 ≤ b < 100; 64 is in it, but two rows are no evidence for 64
    result = ingest(trace(tmp_path, plain(100, 2), plain(100, 2)))
    note = next(note for note in result.notes if note.code == "block_size_unknown")
    # floor: 100 / 3 < b ≤ 50, so 34 to 99 in all
    assert "(34 to 99 tokens fit)" in note.message
    assert result.domains == []


def test_only_known_size_in_a_range_is_taken_from_many_rows(tmp_path: Path) -> None:
    # ceil: 1025 / 3 ≤ b < 1025 / 2, so 342 to 512; floor: 1025 / 4 < b ≤ 1025 / 3, so 257 to 341
    domain = ingest(trace(tmp_path, *[plain(1025, 3)] * 20)).domains[0]
    assert (domain.block_size_tokens, domain.partial_tail) == (512, "counted")
    assert domain.block_size_reason.endswith("of the sizes that fit, 257 to 512, only it is in use")


def test_size_that_all_rows_leave_beats_those_that_nearly_all_leave(tmp_path: Path) -> None:
    rows = [*[plain(1000, 21)] * 200, plain(4800, 100), plain(4801, 101)]
    # 1000 / 21 ≤ b < 50: 48 or 49; 4800 / 100 ≤ b ≤ 48; 4801 / 101 ≤ b ≤ 48: only 48 fits all
    domain = ingest(trace(tmp_path, *rows)).domains[0]
    assert domain.block_size_tokens == 48


# Block ids that are text


def with_ids(tmp_path: Path, *ids: object) -> Ingested:
    return ingest(trace(tmp_path, *TELLING, plain(len(ids) * 512, 0) | {"hash_ids": list(ids)}))


def test_hex_ids_without_0x_are_opaque_and_never_floats(tmp_path: Path) -> None:
    # As floats these three would be 1.2e5 twice and infinity.
    result = with_ids(tmp_path, "12e4", "120e3", "1e999")
    assert result.totals.distinct_blocks == 3 + 3
    assert result.totals.requests == 4
    assert "mixed_block_ids" in codes(result)


def test_decimal_ids_with_leading_zeros_are_other_ids(tmp_path: Path) -> None:
    # TELLING has 0, 1, 2; "7" is a new block, "007" another one, "2" is block 2
    assert with_ids(tmp_path, "7", "007", "2").totals.distinct_blocks == 3 + 2


def test_0x_ids_are_numbers_up_to_64_bits_and_hashed_above(tmp_path: Path) -> None:
    keys = with_ids(tmp_path, "0x10", "0xFFFFFFFFFFFFFFFF", "0x" + "f" * 17).frames["keys"]
    hashes = keys["chained_hash"].to_list()
    assert hashes[3:5] == [16, 2**64 - 1]
    assert hashes[5] not in (0, 2**64 - 1)


def test_files_of_text_ids_have_the_reuse_of_the_same_numbers(tmp_path: Path) -> None:
    rows = [plain(512, 0) | {"hash_ids": [key]} for key in (5, 9, 5)]
    texts = [row | {"hash_ids": [f"{row['hash_ids'][0]:016x}e"]} for row in rows]  # type: ignore[index]
    numbers = ingest(write(tmp_path / "n.jsonl", [*rows, *TELLING[1:]]))
    named = ingest(write(tmp_path / "t.jsonl", [*texts, *TELLING[1:]]))
    starts = [result.frames["blocks"]["start_block"].to_list()[:3] for result in (numbers, named)]
    assert starts[0] == starts[1] == [0, 1, 0]


def test_a_length_past_any_count_is_rejected_and_a_huge_one_is_flagged(tmp_path: Path) -> None:
    odd = [plain(10**15, 1), plain(2**53, 1)]
    result = ingest(trace(tmp_path, *[plain(513, 2), plain(512, 1)] * 100, *odd))
    assert result.files[0].rejected_by_reason == {"out_of_range": 1}
    flags = result.frames["requests"]["flags"].to_list()[-1]
    assert flags == ["implausible_length", "block_length_mismatch"]
    assert result.domains[0].block_size_tokens == 512


def test_a_short_rotated_piece_takes_the_block_size_of_the_log(tmp_path: Path) -> None:
    rows = [
        plain(row_tokens, -(-row_tokens // 512), at_ms=1000 * at)
        for at, row_tokens in enumerate((512, 513, 1025, 5000))
    ]
    write(tmp_path / "r.jsonl.1", rows)
    write(tmp_path / "r.jsonl", [plain(600, 2, at_ms=4000)])  # alone it fits 301 to 599
    result = ingest(tmp_path)
    assert [(one.block_size_tokens, one.block_refs) for one in result.domains] == [(512, 18)]
    assert "block_size_unknown" not in codes(result)
    assert {entry.evidence_grade for entry in result.files} == {"A"}


def test_texts_become_block_keys_where_rows_have_no_ids() -> None:
    head = "The same beginning of two prompts. "  # 35 bytes
    rows: list[dict[str, object]] = [
        {"text_input": head + "One end of it.", "timestamp": 0, "output_length": 5},
        {"text_input": head + "The other end.", "timestamp": 10, "output_length": 6},
        {"messages": [{"role": "user", "content": "hi"}], "timestamp": 20, "output_length": 7},
        {"payload": {"prompt": head}, "timestamp": 30, "output_length": 8},
        {"payload": {"audio": 1}, "timestamp": 40, "output_length": 8},
    ]
    data = b"".join(json.dumps(row).encode() + b"\n" for row in rows)
    reading = read_bytes(FORMATS[0], data, prompt_hasher=PromptHasher(b"key", block_tokens=4))
    first, second, chat, payload, other = reading.requests
    # 49, 49, "<user>\nhi\n" = 10 and 35 bytes at 4 a token
    assert [row.prompt_tokens for row in reading.requests] == [13, 13, 3, 9, None]
    same = [a == b for a, b in zip(first.block_keys or [], second.block_keys or [], strict=True)]
    assert same == [True, True, False, False]
    assert list(payload.block_keys or [])[:2] == list(first.block_keys or [])[:2]
    assert len(chat.block_keys or []) == 1
    assert other.block_keys is None
    assert reading.context.found_block_size_tokens == 4
    assert {"block_keys_from_bytes", "chat_template_assumed"} <= reading.note_codes
    assert "no_block_ids" not in reading.note_codes


def test_ids_and_texts_do_not_mix() -> None:
    text: dict[str, object] = {"text_input": "a text", "timestamp": 0, "output_length": 5}
    ids: dict[str, object] = {"input_length": 5, "hash_ids": [1], "timestamp": 1}
    lines = [json.dumps(row).encode() + b"\n" for row in (text, ids)]
    texts_first = read_bytes(FORMATS[0], b"".join(lines), prompt_hasher=PromptHasher(b"key"))
    assert [row.block_keys is None for row in texts_first.requests] == [False, True]
    assert texts_first.requests[1].flags == ("block_ids_dropped",)
    ids_first = read_bytes(FORMATS[0], b"".join(lines[::-1]), prompt_hasher=PromptHasher(b"key"))
    assert [row.block_keys is None for row in ids_first.requests] == [False, True]
