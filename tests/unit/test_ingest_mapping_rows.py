"""Rows of mapped records: nested JSON, CSV, lists; what is unknown, rejected, assumed."""

from __future__ import annotations

import json

import pytest

from kvtrace.errors import UsageError
from kvtrace.ingest.mapping import recognise_mapped
from tests.unit.mapped import json_lines, mapping, read

NESTED = """
[time]
field = "ts"
unit = "ms"
[fields]
request_id = "id"
session = "user.session"
tenant = "user.name"
model = "llm"
prompt_tokens = "usage.in"
cached_tokens = "usage.details.cached"
output_tokens = "usage.out"
ttft = "ttft_ms"
e2e = { field = "latency", unit = "s" }
status = "code"
[semantics]
prompt_includes_cached = true
"""


def _record(**changes: object) -> dict[str, object]:
    record: dict[str, object] = {
        "ts": 1_767_225_600_250,
        "id": "r1",
        "user": {"session": "s1", "name": "n1"},
        "llm": "llama",
        "usage": {"in": 100, "details": {"cached": 32}, "out": 7},
        "ttft_ms": 12.5,
        "latency": 1.1,
        "code": 200,
    }
    return record | changes


def test_nested_fields_become_a_row_exactly() -> None:
    # 1.1 s is 1 100 000 000 ns, which float arithmetic would miss by one
    row = read(NESTED, json_lines([_record()])).requests[0]
    assert (row.request_id, row.session_id, row.tenant, row.llm) == ("r1", "s1", "n1", "llama")
    assert row.arrived_at_ns == 1_767_225_600_250_000_000
    assert (row.prompt_tokens, row.cached_tokens, row.output_tokens) == (100, 32, 7)
    assert (row.ttft_ns, row.ttft_from, row.e2e_ns) == (12_500_000, "arrival", 1_100_000_000)
    assert (row.status, row.flags) == ("ok", ())


def test_nanoseconds_are_read_to_the_last_digit() -> None:
    text = '[time]\nfield = "t"\nunit = "ns"\n[fields]\nprompt_tokens = "p"'
    reading = read(text, b'{"t": 1767225600123456789, "p": 5}\n')
    assert reading.requests[0].arrived_at_ns == 1_767_225_600_123_456_789
    assert (reading.context.clock, reading.context.clock_resolution_ns) == ("utc", 1)


def test_null_is_unknown_and_zero_is_measured() -> None:
    usage = [
        {"in": 10, "details": None, "out": 0},
        {"in": 10, "details": {"cached": 0}, "out": None},
    ]
    rows = read(NESTED, json_lines([_record(usage=one) for one in usage])).requests
    assert [(row.cached_tokens, row.output_tokens) for row in rows] == [(None, 0), (0, None)]


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"ts": "secret-value"}, "`ts`"),
        ({"usage": {"in": -1}}, "`usage.in`"),
        ({"usage": {"in": 1.5}}, "`usage.in`"),
        ({"usage": {"in": "secret-value"}}, "`usage.in`"),
        ({"usage": {"in": 10**30}}, "`usage.in`"),
        ({"latency": "secret-value"}, "`latency`"),
        ({"ttft_ms": [1]}, "`ttft_ms`"),
        ({"latency": True}, "`latency`"),
        ({"latency": "٣"}, "`latency`"),
    ],
)
def test_what_does_not_parse_is_rejected_by_field_never_by_value(
    changes: dict[str, object], named: str
) -> None:
    good = [_record(), _record()]
    reading = read(NESTED, json_lines([*good, _record(**changes)]))
    assert reading.rejected == [(3, "invalid_field")]
    detail = reading.context.tally.rejects[0][2] or ""
    assert named in detail
    assert "secret-value" not in detail


def test_damaged_lines_are_rejected_and_the_rest_is_read() -> None:
    whole = json_lines([_record()])
    spliced = whole.rstrip(b"\n") + whole
    deep = b'{"ts": ' + b"[" * 100_000 + b"\n"
    data = whole + spliced + whole[:40] + b"\n" + b"[1]\n" + deep + b"\n" + whole[:-1]
    reading = read(NESTED, data)
    assert len(reading.requests) == 2
    assert [line for line, _ in reading.rejected] == [2, 3, 4, 5]


def test_a_negative_duration_is_unknown_and_flagged() -> None:
    row = read(NESTED, json_lines([_record(), _record(ttft_ms=-1)])).requests[1]
    assert (row.ttft_ns, row.ttft_from, row.flags) == (None, None, ("negative_ttft",))


def test_records_without_any_mapped_field_are_left_out() -> None:
    reading = read(NESTED, json_lines([_record(), {"event": "started"}, {"usage": {}}]))
    assert (len(reading.requests), reading.ignored) == (1, {"no_mapped_field": 2})


def test_where_keeps_the_wanted_records() -> None:
    text = NESTED.replace("[time]", '[where]\nevent = ["done", "failed"]\n[time]')
    records = [_record(event=event) for event in ("done", "start", "FAILED")] + [_record()]
    reading = read(text, json_lines(records))
    assert (len(reading.requests), reading.ignored) == (2, {"left_out_by_where": 2})


def test_keys_with_points_are_found_however_they_are_nested() -> None:
    text = (
        '[fields]\nprompt_tokens = "attributes.gen_ai.usage.input_tokens"\nmodel = "gen_ai.model"'
    )
    record = {"attributes": {"gen_ai.usage.input_tokens": 9}, "gen_ai.model": "m"}
    row = read(text, json_lines([record])).requests[0]
    assert (row.prompt_tokens, row.llm) == (9, "m")
    listed = '[fields]\nprompt_tokens = ["attributes", "gen_ai.usage.input_tokens"]'
    assert read(listed, json_lines([record])).requests[0].prompt_tokens == 9


def test_json_inside_a_text_and_elements_of_lists_are_reached() -> None:
    text = '[fields]\nprompt_tokens = "log.usage.in"\noutput_tokens = "choices.1.tokens"'
    record = {
        "log": json.dumps({"usage": {"in": 4}}),
        "choices": [{"tokens": 1}, {"tokens": 2}],
    }
    row = read(text, json_lines([record, {"log": "not json", "choices": []}])).requests[0]
    assert (row.prompt_tokens, row.output_tokens) == (4, 2)


def test_a_whole_usage_object_is_read_by_its_producer() -> None:
    text = '[fields]\nusage = "u"'
    anthropic = {"input_tokens": 5, "cache_read_input_tokens": 90, "cache_creation_input_tokens": 5,
                 "output_tokens": 2, "cache_creation": {}}  # fmt: skip
    openai = {"prompt_tokens": 50, "prompt_tokens_details": {"cached_tokens": 48},
              "completion_tokens": 3}  # fmt: skip
    rows = read(text, json_lines([{"u": anthropic}, {"u": openai}])).requests
    assert [(row.prompt_tokens, row.cached_tokens) for row in rows] == [(100, 90), (50, 48)]
    assert rows[0].cache_write_tokens == 5


@pytest.mark.parametrize(
    ("said", "rows", "prompts", "severity"),
    [
        ("true", [(100, 32)], [100], None),
        ("false", [(100, 32)], [132], None),
        (None, [(100, 32)], [100], "warning"),
        # 40 of 10 tokens cannot be inside: the whole file counts without the cached ones
        (None, [(100, 32), (10, 40)], [132, 50], "info"),
    ],
)
def test_whether_a_prompt_count_includes_the_cached_tokens(
    said: str | None, rows: list[tuple[int, int]], prompts: list[int], severity: str | None
) -> None:
    text = '[fields]\nprompt_tokens = "p"\ncached_tokens = "c"\n'
    if said is not None:
        text += f"[semantics]\nprompt_includes_cached = {said}"
    reading = read(text, json_lines([{"p": prompt, "c": cached} for prompt, cached in rows]))
    assert [row.prompt_tokens for row in reading.requests] == prompts
    notes = {note.code: note.severity for note in reading.context.notes}
    assert notes.get("cache_semantics_assumed") == severity


def test_a_total_tells_what_the_prompt_count_includes() -> None:
    text = '[fields]\nprompt_tokens = "p"\ncached_tokens = "c"\n'
    text += 'output_tokens = "o"\ntotal_tokens = "t"'
    # 142 = 100 + 32 + 10: the cached tokens stand beside the prompt
    reading = read(text, json_lines([{"p": 100, "c": 32, "o": 10, "t": 142}]))
    assert reading.requests[0].prompt_tokens == 132


def test_outcomes_by_code_by_word_and_by_list() -> None:
    text = '[fields]\nprompt_tokens = "p"\nstatus = "s"'
    values = [200, 500, 499, "Success", "aborted", True, "brand new"]
    reading = read(text, json_lines([{"p": 1, "s": value} for value in values]))
    assert [row.status for row in reading.requests] == [
        "ok", "error", "cancelled", "ok", "cancelled", "ok", "ok",
    ]  # fmt: skip
    assert "status_unknown" in reading.note_codes
    listed = text.replace('"s"', '{ field = "s", ok = ["fine"], cancelled = [0] }')
    reading = read(listed, json_lines([{"p": 1, "s": value} for value in ["FINE", 0, "odd"]]))
    assert [row.status for row in reading.requests] == ["ok", "cancelled", "error"]


def test_a_gateway_cache_hit_is_no_kv_hit() -> None:
    text = (
        '[fields]\nprompt_tokens = "p"\ncached_tokens = "c"\ngateway_cache_hit = "hit"\n'
        'failed = "error"\n[semantics]\nprompt_includes_cached = true'
    )
    records = [
        {"p": 10, "c": 8, "hit": True, "error": None},
        {"p": 10, "c": 8, "hit": False, "error": {"code": 1}},
        {"p": 10, "c": 8, "hit": False, "error": ""},
    ]
    rows = read(text, json_lines(records)).requests
    assert [row.status for row in rows] == ["gateway_cache_hit", "error", "ok"]
    assert [row.cached_tokens for row in rows] == [None, 8, 8]


def test_csv_by_header_wherever_the_columns_stand() -> None:
    text = '[time]\nfield = "when"\nzone = "Europe/Berlin"\n[fields]\nprompt_tokens = "in"'
    data = (
        b'note,in,when\n"a, ""b""\nc",5,2026-01-01 12:00:00\nx,,2026-01-01 12:00:01\n'
        b"note,in,when\nx,y,z\n1,2\n"
    )
    reading = read(text, data, name="log.csv")
    # 12:00 in Berlin in winter is 11:00 UTC
    assert [row.prompt_tokens for row in reading.requests] == [5, None]
    assert reading.requests[0].arrived_at_ns == 1_767_265_200_000_000_000
    assert reading.context.clock == "utc"
    assert reading.ignored == {"header": 1, "repeated_header": 1}
    assert [reason for _, reason in reading.rejected] == ["invalid_field", "wrong_cell_count"]


def test_csv_with_another_delimiter_or_without_a_header() -> None:
    fields = '[fields]\nprompt_tokens = "in"\noutput_tokens = "out"'
    rows = read(fields, b"out;in\n1;2\n3;4\n", name="log.csv").requests
    assert [(row.prompt_tokens, row.output_tokens) for row in rows] == [(2, 1), (4, 3)]
    text = 'columns = ["out", "in"]\n' + fields
    rows = read(text, b"1,2\n3,4\n", name="log.csv").requests
    assert [(row.prompt_tokens, row.output_tokens) for row in rows] == [(2, 1), (4, 3)]


def test_a_number_that_the_end_of_the_file_may_cut_is_rejected() -> None:
    reading = read('[fields]\nprompt_tokens = "in"', b"id,in\na,5\nb,12", name="log.csv")
    assert [row.prompt_tokens for row in reading.requests] == [5]
    assert reading.rejected == [(3, "damaged_line")]


def test_a_column_that_is_not_there_is_an_error_with_close_names() -> None:
    made = mapping('[fields]\nprompt_tokens = "prompt_tokns"\noutput_tokens = "out"')
    with pytest.raises(UsageError) as caught:
        recognise_mapped(made, b"prompt_tokens,out\n1,2\n", "log.csv")
    assert caught.value.code == "KVT-U035"
    assert "`prompt_tokns` (did you mean `prompt_tokens`?)" in caught.value.message


def test_a_field_that_no_record_has_is_noted_with_the_count() -> None:
    text = '[fields]\nprompt_tokens = "prompt_tokens"\noutput_tokens = "outputtokens"'
    reading = read(text, json_lines([{"prompt_tokens": 1, "output_tokens": 2}] * 3))
    (note,) = [note for note in reading.context.notes if note.code == "mapped_field_absent"]
    assert "None of 3 records" in note.message
    assert "`outputtokens` (did you mean `output_tokens`?)" in note.message


def test_a_document_with_a_list_of_requests_is_one_record() -> None:
    text = 'records = "run.results"\n[fields]\nprompt_tokens = "p"'
    document = {"run": {"results": [{"p": 1}, {"p": -1}, {"x": 0}, {"p": 2}]}}
    reading = read(text, json.dumps(document, indent=1).encode(), name="run.json")
    assert [row.prompt_tokens for row in reading.requests] == [1, 2]
    assert reading.context.tally.used == 1
    assert {"mapped_elements_refused", "mapped_elements_left_out"} <= reading.note_codes


def test_an_array_of_objects_is_read_element_by_element() -> None:
    data = json.dumps([{"p": 1}, {"p": 2}], indent=1).encode()
    rows = read('[fields]\nprompt_tokens = "p"', data, name="log.json").requests
    assert [row.prompt_tokens for row in rows] == [1, 2]


def test_block_hashes_with_their_size() -> None:
    text = '[fields]\nprompt_tokens = "p"\nblock_hashes = { field = "h", block_size = 16 }'
    # 40 tokens are ceil(40 / 16) = 3 blocks; 1 id for them is of another size
    records = [{"p": 40, "h": [1 << 63, 2, 3]}, {"p": 40, "h": [9]}, {"p": 10, "h": None}]
    reading = read(text, json_lines(records))
    assert [row.block_keys for row in reading.requests] == [[1 << 63, 2, 3], None, None]
    assert reading.requests[1].flags == ("block_count_mismatch",)
    context = reading.context
    assert (context.found_block_size_tokens, context.partial_tail) == (16, "counted")
    assert (context.block_scope, context.block_ids) == ("global", "chained")


def test_small_ids_mean_something_in_their_file_only() -> None:
    text = '[fields]\nprompt_tokens = "p"\nblock_hashes = { field = "h", block_size = 16 }'
    assert read(text, json_lines([{"p": 32, "h": [1, 2]}])).context.block_scope == "file"


def test_the_block_size_is_inferred_where_lengths_tell_it() -> None:
    text = '[fields]\nprompt_tokens = "p"\nblock_hashes = "h"'
    records = [{"p": 61 * n, "h": list(range(-(-61 * n // 64)))} for n in range(1, 40)]
    assert read(text, json_lines(records)).context.found_block_size_tokens == 64


def test_ids_of_single_blocks_are_chained() -> None:
    text = (
        '[fields]\nprompt_tokens = "p"\n'
        'block_hashes = { field = "h", block_size = 16, chained = false }'
    )
    reading = read(text, json_lines([{"p": 32, "h": [7, 8]}, {"p": 32, "h": [9, 8]}]))
    first, second = (row.block_keys for row in reading.requests)
    assert first is not None
    assert second is not None
    assert first[1] != second[1]  # the same id behind another prefix is another block
    assert reading.context.block_ids == "content_chained"


def test_hashes_as_texts_and_in_csv_cells() -> None:
    text = '[fields]\nprompt_tokens = "p"\nblock_hashes = { field = "h", block_size = 16 }'
    reading = read(text, b'p,h\n32,0x0a 0x0b\n32,"[10, ""11""]"\n', name="log.csv")
    assert [row.block_keys for row in reading.requests] == [[10, 11], [10, 11]]


def test_token_ids_become_keys_of_prefixes_and_are_gone() -> None:
    text = '[fields]\ntoken_ids = { field = "ids", block_size = 2 }'
    records = [{"ids": [1, 2, 3, 4]}, {"ids": [1, 2, 9]}, {"ids": [1 << 40]}, {"ids": [-1]}]
    reading = read(text, json_lines(records))
    first, second = reading.requests
    assert first.block_keys is not None
    assert second.block_keys is not None
    assert first.block_keys[0] == second.block_keys[0]
    assert first.block_keys[1] != second.block_keys[1]
    assert (first.prompt_tokens, second.prompt_tokens) == (4, 3)
    assert len(reading.rejected) == 2
    assert reading.context.found_block_size_tokens == 2


def test_prompts_become_keys() -> None:
    text = '[fields]\nprompt = "messages"'
    shared = {"role": "system", "content": "be brief " * 40}
    records = [
        {"messages": [shared, {"role": "user", "content": "one"}]},
        {"messages": [shared, {"role": "user", "content": "two"}]},
        {"messages": "plain text"},
    ]
    reading = read(text, json_lines(records))
    first, second, third = (row.block_keys for row in reading.requests)
    assert first is not None
    assert second is not None
    assert third is not None
    assert first[0] == second[0]
    assert first[-1] != second[-1]
    assert "block_keys_from_bytes" in reading.note_codes


def test_absent_texts_and_turns() -> None:
    text = (
        'absent = ["N/A", -1]\n[fields]\nprompt_tokens = "p"\noutput_tokens = "o"\n'
        'turn = { field = "n", first = 1 }'
    )
    rows = read(
        text, json_lines([{"p": 5, "o": -1, "n": 1}, {"p": "n/a", "o": 2, "n": 3}])
    ).requests
    assert [(row.prompt_tokens, row.output_tokens, row.turn) for row in rows] == [
        (5, None, 0),
        (None, 2, 2),
    ]


def test_a_mapping_that_does_not_fit_says_what_is_missing() -> None:
    made = mapping('[fields]\nprompt_tokens = "prompts"\noutput_tokens = "x"\nmodel = "y"')
    found = recognise_mapped(made, json_lines([{"prompt": 1, "other": 2}]), "log.jsonl")
    assert found.format is None
    assert "`prompts` (did you mean `prompt`?)" in found.reason
    named = recognise_mapped(
        mapping('match = "a*"\n[fields]\nmodel = "m"'), json_lines([{"m": "x"}]), "b.jsonl"
    )
    assert named.format is None
    assert 'does not match "a*"' in named.reason


def test_reasoning_tokens_beside_the_output_are_added() -> None:
    text = (
        '[fields]\noutput_tokens = "o"\nreasoning_tokens = "r"\n'
        "[semantics]\noutput_includes_reasoning = false"
    )
    assert read(text, json_lines([{"o": 5, "r": 7}])).requests[0].output_tokens == 12


def test_a_part_longer_than_its_request_is_unknown_and_never_read_in_another_unit() -> None:
    text = (
        '[fields]\nprompt_tokens = "p"\n'
        + "".join(
            f'{key} = {{ field = "{key}", unit = "ms" }}\n' for key in ("queue", "prefill", "e2e")
        )
        + 'tpot = { field = "tpot", unit = "text" }\n'
    )
    records = [
        {"p": 1, "queue": 5, "prefill": 7, "tpot": "2ms", "e2e": 40},
        {"p": 1, "queue": 5_000, "prefill": 7, "tpot": "3s", "e2e": 40},
        {"p": 1, "queue": -5, "prefill": 7, "tpot": "2ms", "e2e": 40},
        {"p": 1, "queue": 5_000, "prefill": 7, "tpot": "2ms"},  # nothing to hold it against
    ]
    rows = read(text, json_lines(records)).requests
    assert [row.queue_ns for row in rows] == [5_000_000, None, None, 5_000_000_000]
    assert [row.prefill_ns for row in rows] == [7_000_000] * 4
    assert [row.tpot_ns for row in rows] == [2_000_000, None, 2_000_000, 2_000_000]
    assert [row.e2e_ns for row in rows] == [40_000_000] * 3 + [None]
    assert [row.flags for row in rows] == [(), ("part_above_e2e",), ("negative_queue",), ()]
