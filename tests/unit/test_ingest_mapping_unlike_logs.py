"""Logs that are unlike one another: what is suggested for each, and that it reads its own log."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from kvtrace.errors import UsageError
from kvtrace.ingest.mapping import offer_mapping
from kvtrace.ingest.registry import all_formats
from tests.unit.mapped import json_lines, read

T = 1_767_225_600
MANY = range(30)


def short(at: int) -> dict[str, object]:
    return {"id": f"r{at}", "conv": f"c{at % 7}", "finished_at": (T + at) * 1000 + 900,
            "total_ms": 800 + at, "n_in": 500 + at, "n_hit": at % 4 * 64, "n_out": 9}  # fmt: skip


def nested(at: int) -> dict[str, object]:
    return {"evt": {"end_ms": (T + at) * 1000 + 1200 + at, "start_ms": (T + at) * 1000},
            "perf": {"dur_ms": 1200 + at, "wait_us": 5_000 + at}, "http": {"code": 200},
            "tok": {"p": 900 + at, "cached": at % 3 * 128, "c": 50 + at % 9}}  # fmt: skip


def odd(at: int) -> dict[str, object]:
    return {"ended": f"2026-01-01T00:{at:02}:03.5Z", "began": f"2026-01-01T00:{at:02}:01Z",
            "seconds": 2.5, "prompt_len": 700 + at, "reused": at % 5 * 64, "gen_len": 64,
            "thread": f"t{at % 4}"}  # fmt: skip


def wrapped(at: int) -> dict[str, object]:
    inner = {"tokensIn": str(400 + at), "tokensCached": str(at % 2 * 128), "tokensOut": "10",
             "elapsedMs": str(1000 + at), "chatId": f"h{at % 6}"}  # fmt: skip
    return {"time": f"2026-01-01T00:00:{at:02}.123Z", "log": json.dumps(inner)}


def glued(at: int) -> dict[str, object]:
    return {"starttime": (T + at) * 10**6, "endtime": (T + at) * 10**6 + 2_000_000 + at,
            "requestid": f"q{at}", "sessionid": f"s{at % 5}", "prompttokens": 100 + at,
            "outputtokens": 7, "totaltokens": 107 + at}  # fmt: skip


def exclusive(at: int) -> dict[str, object]:
    return {"completed": T + at, "input_tokens": 5, "cache_read": 900 + at, "cache_creation": 10,
            "output_tokens": 7}  # fmt: skip


def _csv(header: str, row: Callable[[int], str]) -> bytes:
    return "".join([header, *map(row, MANY)]).encode()


SEMICOLONS = _csv(
    "at;req;isl;osl;cached;lat\n",
    lambda n: f'{T + n};"{n}";"{2000 + n}";"{40 + n % 7}";"{n % 5 * 256}";"{2500000 + n}"\n',
)
TABS = _csv(
    "when\tcall_id\tdialog\tprompt_size\tprefix_hit\treply_size\tqueue_wait\n",
    lambda n: f"{(T + n) * 1000}\tc{n}\td{n % 9}\t{800 + n}\t{n % 3 * 256}\t33\t0.0{n + 10}\n",
)
DOCUMENT = json.dumps(
    {"calls": [{"t0": (T + n) * 10**9, "t1": (T + n) * 10**9 + 1_500_000_000 + n, "in": 300 + n,
                "hit": n % 3 * 64, "out": 12, "key": f"k{n}"} for n in MANY]}
).encode()  # fmt: skip

CASES = {
    # log → (its bytes, time, meaning, fields)
    "short.jsonl": (json_lines(map(short, MANY)), "finished_at", "end", {
        "request_id": "id", "session": "conv", "prompt_tokens": "n_in", "cached_tokens": "n_hit",
        "output_tokens": "n_out", "e2e": {"field": "total_ms", "unit": "ms"}}),
    "nested.jsonl": (json_lines(map(nested, MANY)), "evt.start_ms", "start", {
        "prompt_tokens": "tok.p", "cached_tokens": "tok.cached", "output_tokens": "tok.c",
        "queue": {"field": "perf.wait_us", "unit": "us"},
        "e2e": {"field": "perf.dur_ms", "unit": "ms"},
        "status": {"field": "http.code", "cancelled": [0, 499]}}),
    "odd.jsonl": (json_lines(map(odd, MANY)), "began", "start", {
        "session": "thread", "prompt_tokens": "prompt_len", "cached_tokens": "reused",
        "output_tokens": "gen_len", "e2e": {"field": "seconds", "unit": "s"}}),
    "wrapped.jsonl": (json_lines(map(wrapped, MANY)), "time", "start", {
        "session": "log.chatId", "prompt_tokens": "log.tokensIn",
        "cached_tokens": "log.tokensCached", "output_tokens": "log.tokensOut",
        "e2e": {"field": "log.elapsedMs", "unit": "ms"}}),
    "glued.jsonl": (json_lines(map(glued, MANY)), "starttime", "start", {
        "request_id": "requestid", "session": "sessionid", "prompt_tokens": "prompttokens",
        "output_tokens": "outputtokens", "total_tokens": "totaltokens",
        "finished_at": "endtime"}),
    "exclusive.jsonl": (json_lines(map(exclusive, MANY)), None, None, {
        "prompt_tokens": "input_tokens", "cached_tokens": "cache_read",
        "cache_write_tokens": "cache_creation", "output_tokens": "output_tokens"}),
    "semicolons.csv": (SEMICOLONS, "at", "start", {
        "prompt_tokens": "isl", "output_tokens": "osl", "cached_tokens": "cached",
        "e2e": {"field": "lat", "unit": "us"}}),
    "tabs.tsv": (TABS, "when", "start", {
        "request_id": "call_id", "session": "dialog", "prompt_tokens": "prompt_size",
        "cached_tokens": "prefix_hit", "output_tokens": "reply_size",
        "queue": {"field": "queue_wait", "unit": "s"}}),
    "document.json": (DOCUMENT, "t0", "start", {
        "request_id": "key", "prompt_tokens": "in", "cached_tokens": "hit",
        "output_tokens": "out", "finished_at": "t1"}),
}  # fmt: skip


def offered(data: bytes, name: str, folder: Path) -> str:
    (folder / name).write_bytes(data)
    return offer_mapping([folder / name], all_formats())


@pytest.mark.parametrize("name", CASES)
def test_fields_are_found_and_the_mapping_reads_its_log(name: str, tmp_path: Path) -> None:
    data, time, meaning, fields = CASES[name]
    text = offered(data, name, tmp_path)
    said = tomllib.loads(text)
    assert {key: value for key, value in said["fields"].items() if key != "model"} == fields
    assert said.get("time", {}).get("field") == time
    assert said.get("time", {}).get("meaning") == meaning
    assert "# Tried: it loads, and reads 30 records" in text
    made = read(text, data, name=name)
    assert (len(made.requests), made.rejected) == (30, [])


def test_an_end_without_a_duration_is_left_to_the_reader(tmp_path: Path) -> None:
    text = offered(json_lines(map(exclusive, MANY)), "log.jsonl", tmp_path)
    assert '# field = "completed"' in text
    assert "no duration leads from it to the start" in text
    assert tomllib.loads(text)["semantics"] == {"prompt_includes_cached": False}


def test_every_line_says_how_sure_it_is(tmp_path: Path) -> None:
    lines = offered(json_lines(map(nested, MANY)), "log.jsonl", tmp_path).splitlines()
    by_key = {line.partition(" = ")[0]: line for line in lines}
    assert by_key["cached_tokens"].endswith("never above `tok.p` (sure)")
    assert by_key["prompt_tokens"].endswith("(check me)")
    assert "is `evt.end_ms` less `evt.start_ms`" in by_key["e2e"]
    assert by_key["e2e"].endswith("(sure)")
    assert by_key["queue"].endswith("(likely)")


def test_no_field_is_offered_twice(tmp_path: Path) -> None:
    records = [{"ts": T + at, "finished": T + at + 2, "latency_s": 2, "prompt_tokens": 9,
                "total_s": 2} for at in MANY]  # fmt: skip
    text = offered(json_lines(records), "log.jsonl", tmp_path)
    assert text.count('"latency_s"') == 1
    assert '# e2e = { field = "total_s", unit = "s" }' in text


def test_block_ids_whose_size_nothing_tells_become_a_comment(tmp_path: Path) -> None:
    records = [{"arrival": at, "hashes": [1, 2, at], "generated": 5} for at in MANY]
    text = offered(json_lines(records), "log.jsonl", tmp_path)
    assert "block_hashes" not in tomllib.loads(text)["fields"]
    assert "kept the mapping from reading its own file" in text


def test_a_log_without_token_counts_is_answered_with_its_fields(tmp_path: Path) -> None:
    records = [{"when": T + at, "Eingabe": 5 + at, "mallory@example.com": 1} for at in MANY]
    with pytest.raises(UsageError) as raised:
        offered(json_lines(records), "log.jsonl", tmp_path)
    said = str(raised.value.cause) + str(raised.value.hint)
    assert "`Eingabe` (number)" in said
    assert "prompt_tokens" in said
    assert "mallory" not in said


@pytest.mark.parametrize(
    "key", ["mallory@example.com", "sk-abcdef123456", "gpu-17.corp.example.com", "KEYABCDEFGHIJKL"]
)
def test_keys_that_are_data_never_get_out(key: str, tmp_path: Path) -> None:
    records = [{"ts": T + at, "prompt_tokens": 5 + at, key: at, "users": {key: {"tokens": at}}}
               for at in MANY]  # fmt: skip
    assert key not in offered(json_lines(records), "log.jsonl", tmp_path)
    with pytest.raises(UsageError) as raised:
        offered(json_lines([{"ts": T + at, key: at} for at in MANY]), "none.jsonl", tmp_path)
    assert key not in f"{raised.value} {raised.value.cause} {raised.value.hint}"
