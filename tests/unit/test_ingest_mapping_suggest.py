"""A suggested mapping: the fields are found, doubts are marked, and no value gets out."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from kvtrace.errors import UsageError
from kvtrace.ingest.mapping import offer_mapping
from kvtrace.ingest.mapping.names import is_name
from kvtrace.ingest.mapping.parse import parse_mapping
from kvtrace.ingest.mapping.suggest import suggest
from kvtrace.ingest.mapping.writing import render_suggestion
from kvtrace.ingest.registry import all_formats
from tests.unit.mapped import json_lines, read

START_S = 1_767_225_600
CANARIES = (
    "the secret question",
    "mallory@example.com",
    "sk-abcdef123456",
    "gpu-17.internal.example",
    "7f3a9c0d1e2b4f56",
    "918273645546",
)


def _suggested(data: bytes, name: str = "log.jsonl") -> str:
    made = suggest(data, name)
    assert made is not None
    text = render_suggestion([made])
    parse_mapping(tomllib.loads(text), "map.toml")
    return text


def _gateway(at: int) -> dict[str, object]:
    return {
        "started": START_S + at * 2,
        "requestId": f"r{at}",
        "conversation": {"id": f"c{at // 3}"},
        "served": {"model": "m"},
        "tokens": {"prompt": 400 + at, "cached": 64, "completion": 20},
        "firstTokenMs": 120 + at,
        "durationMs": 900 + at,
        "outcome": "success",
    }


def test_fields_of_a_nested_gateway_log_are_found() -> None:
    text = _suggested(json_lines(map(_gateway, range(20))))
    found = tomllib.loads(text)
    assert found["time"] == {"field": "started", "unit": "s", "meaning": "start"}
    assert found["fields"] == {
        "request_id": "requestId",
        "session": "conversation.id",
        "model": "served.model",
        "prompt_tokens": "tokens.prompt",
        "cached_tokens": "tokens.cached",
        "output_tokens": "tokens.completion",
        "ttft": {"field": "firstTokenMs", "unit": "ms"},
        "e2e": {"field": "durationMs", "unit": "ms"},
        "status": "outcome",
    }
    assert found["semantics"] == {"prompt_includes_cached": True}
    assert "20 of 20 records" in text
    assert "check me" in next(line for line in text.splitlines() if "prompt_includes" in line)


def test_the_suggestion_reads_the_log() -> None:
    data = json_lines(map(_gateway, range(20)))
    row = read(_suggested(data), data).requests[3]
    assert (row.arrived_at_ns, row.prompt_tokens) == ((START_S + 6) * 10**9, 403)
    assert (row.ttft_ns, row.e2e_ns) == (123_000_000, 903_000_000)


def test_a_usage_object_is_taken_whole_and_its_counts_are_alternatives() -> None:
    usage = {"input_tokens": 5, "cache_read_input_tokens": 90, "output_tokens": 2}
    text = _suggested(json_lines([{"ts": START_S + at, "usage": usage} for at in range(5)]))
    assert 'usage = "usage"  # 5 of 5 records: usage objects (anthropic)' in text
    assert '# cached_tokens = "usage.cache_read_input_tokens"' in text


def test_keys_with_points_are_written_as_lists() -> None:
    records = [{"gen_ai.usage.input_tokens": 5, "start_time": "2026-01-01T00:00:00Z"}] * 3
    assert 'prompt_tokens = ["gen_ai.usage.input_tokens"]' in _suggested(json_lines(records))


def test_block_hashes_get_the_size_that_the_lengths_tell() -> None:
    records = [
        {"timestamp": n, "input_length": 300 * n, "hash_ids": list(range(-(-300 * n // 512)))}
        for n in range(1, 40)
    ]
    text = _suggested(json_lines(records))
    assert 'block_hashes = { field = "hash_ids", block_size = 512 }' in text
    assert 'clock = "relative"' in text


def test_csv_of_any_delimiter() -> None:
    rows = "".join(f"2026-01-01 00:00:{at:02};{100 + at};{at};0.{at}\n" for at in range(10, 30))
    text = _suggested(f"date;prompt_tokens;output_tokens;latency_s\n{rows}".encode(), "log.csv")
    found = tomllib.loads(text)
    assert (found["framing"], found["delimiter"]) == ("csv", ";")
    assert found["time"] == {"field": "date", "unit": "iso", "zone": "UTC", "meaning": "start"}
    assert found["fields"]["e2e"] == {"field": "latency_s", "unit": "s"}


def test_only_the_time_of_the_end_is_known() -> None:
    records = [
        {"finished_at": START_S + at, "latency_ms": 5, "prompt_tokens": 1} for at in range(5)
    ]
    text = _suggested(json_lines(records))
    assert tomllib.loads(text)["time"]["meaning"] == "end"


def test_requests_inside_a_document() -> None:
    document = {"run": {"results": [{"prompt_tokens": at, "t_ms": at} for at in range(5)]}}
    data = json.dumps(document).encode()
    text = _suggested(data, "run.json")
    assert 'records = "run.results"' in text
    assert len(read(text, data, name="run.json").requests) == 5


def test_epochs_of_several_units_are_left_to_their_magnitude() -> None:
    records = [{"ts": START_S + at, "prompt_tokens": 1} for at in range(5)]
    records += [{"ts": (START_S + at) * 1_000, "prompt_tokens": 1} for at in range(3)]
    assert tomllib.loads(_suggested(json_lines(records)))["time"]["unit"] == "auto"


def test_durations_in_nanoseconds_are_not_taken_for_dates() -> None:
    # 1.5 × 10^9 ns read as epoch seconds would be in 2017
    records = [
        {
            "ts": START_S + at,
            "ttft": 1_500_000_000 + at,
            "latency": 3_000_000_000,
            "prompt_tokens": 1,
        }
        for at in range(5)
    ]
    fields = tomllib.loads(_suggested(json_lines(records)))["fields"]
    assert fields["ttft"] == {"field": "ttft", "unit": "ns"}
    assert fields["e2e"] == {"field": "latency", "unit": "ns"}


def test_a_usage_object_that_lacks_a_count_is_not_taken_whole() -> None:
    records = [
        {
            "ts": START_S + at,
            "usage": {"prompt_tokens": 90, "completion_tokens": 2},
            "cached_tokens": 64,
        }
        for at in range(5)
    ]
    fields = tomllib.loads(_suggested(json_lines(records)))["fields"]
    assert "usage" not in fields
    assert fields["prompt_tokens"] == "usage.prompt_tokens"
    assert fields["cached_tokens"] == "cached_tokens"


def test_no_value_and_no_key_that_is_data_gets_out() -> None:
    question, mail, key, host, digest, number = CANARIES
    records = [
        {
            "ts": START_S + at,
            "user": mail,
            "user_id": number,
            "prompt": question,
            "api_key": key,
            "model": host,
            "status": "ok",
            "session": digest,
            "prompt_tokens": 5,
            mail: {"prompt_tokens": 5},
            key: {"output_tokens": 5},
            digest: {"cached_tokens": 5},
            number: {"session": 1},
            f"http://{host}/": {"latency_ms": 5},
            question + "?": {"model": "x"},
        }
        for at in range(8)
    ]
    text = _suggested(json_lines(records))
    assert [canary for canary in CANARIES if canary in text] == []
    assert 'prompt = "prompt"' in text


def test_a_key_of_one_record_only_is_not_shown() -> None:
    records: list[dict[str, object]] = [{"ts": START_S + at, "prompt_tokens": 5} for at in range(8)]
    records[3]["mallory"] = {"output_tokens": 4}
    assert "mallory" not in _suggested(json_lines(records))


@pytest.mark.parametrize(
    ("key", "shown"),
    [
        ("prompt_tokens", True),
        ("x-request-id", True),
        ("gen_ai.usage.input_tokens", True),
        ("Request tokens", True),
        ("sk-abcdef", False),
        ("a@b.example", False),
        ("7f3a9c0d1e2b4f56", False),
        ("10.0.0.1:8000", False),
        ("user 918273645", False),
        ("Δtokens", False),
        ("x" * 60, False),
        ("", False),
    ],
)
def test_what_counts_as_a_name(key: str, shown: bool) -> None:
    assert is_name(key) is shown


def test_alike_files_share_a_source_and_known_files_need_none(tmp_path: Path) -> None:
    for name in ("gw-1.jsonl", "gw-2.jsonl"):
        (tmp_path / name).write_bytes(json_lines(map(_gateway, range(20))))
    other = [{"when": START_S + at, "prompt_tokens": 1} for at in range(20)]
    (tmp_path / "other.jsonl").write_bytes(json_lines(other))
    mooncake = [{"timestamp": at, "input_length": 9, "output_length": 1, "hash_ids": [at]}
                for at in range(20)]  # fmt: skip
    (tmp_path / "known.jsonl").write_bytes(json_lines(mooncake))
    (tmp_path / "junk.bin").write_bytes(bytes(range(256)))
    text = offer_mapping([tmp_path], all_formats())
    sources = tomllib.loads(text)["source"]
    assert [source["match"] for source in sources] == ["gw-*.jsonl", "other.jsonl"]
    alone = offer_mapping([tmp_path / "known.jsonl"], all_formats())
    assert alone.startswith("# kvtrace reads this file without a mapping, as `mooncake`")


@pytest.mark.parametrize(
    "data", [b"", b"plain text\nmore\n", bytes(range(256)), b'{"a": 1}\n', b"[]", b"a,b\n1,2\n"]
)
def test_nothing_to_map_is_an_error(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(data)
    with pytest.raises(UsageError) as caught:
        offer_mapping([tmp_path / "log"], all_formats())
    assert caught.value.code == "KVT-U037"
