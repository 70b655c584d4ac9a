"""What `kvtrace sniff` says of files: format, reason, grade, what is missing, the flag for it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kvtrace import api
from kvtrace.errors import InputError
from kvtrace.ingest.capabilities import CAPABILITIES
from kvtrace.ingest.inspect import inspect_paths
from kvtrace.ingest.registry import all_formats

STATS = (
    "INFO 05-11 12:04:27 [loggers.py:111] Engine 000: Avg prompt throughput: 10.0 tokens/s, "
    "Avg generation throughput: 5.0 tokens/s, Running: 1 reqs, Waiting: 0 reqs, "
    "GPU KV cache usage: 1.0%, Prefix cache hit rate: 31.4%\n"
)
TRACE = "".join(
    f'{{"timestamp": 0, "input_length": {512 * n - 5}, "output_length": 5, '
    f'"hash_ids": {list(range(n))}}}\n'
    for n in range(1, 60)
)


def write(folder: Path, **texts: str) -> Path:
    for name, text in texts.items():
        (folder / name.replace("_", ".")).write_text(text)
    return folder


def test_each_file_is_named_with_its_reason_and_grade(tmp_path: Path) -> None:
    write(tmp_path, a_log=STATS, b_jsonl=TRACE, c_txt="nothing that is known\n")
    found = {one.path: one for one in inspect_paths([tmp_path])}
    assert [(one.format, one.evidence_grade) for one in found.values()] == [
        ("vllm_text", "C"),
        ("mooncake", "A"),
        (None, None),
    ]
    assert found["a.log"].confidence > 0.9
    assert found["a.log"].why == "1 lines of this program, 1 of them with data"
    assert "prefix_hit_ratio" in found["a.log"].supplies
    assert "block_keys" in found["b.jsonl"].supplies
    assert found["c.txt"].supplies == found["c.txt"].missing == found["c.txt"].flags == []


def test_what_a_file_answers_is_not_called_missing(tmp_path: Path) -> None:
    (log,) = inspect_paths([write(tmp_path, a_log=STATS)])
    assert CAPABILITIES["reuse"].question in log.missing
    assert CAPABILITIES["hit_ratio"].question not in log.missing
    assert len(log.missing) == len(log.flags)
    assert all(log.flags)


def test_a_mixed_log_names_its_other_programs(tmp_path: Path) -> None:
    reqid = "[2025-12-11 03:07:38,556] LMCache INFO: Reqid: c-1, Total tokens 90, LMCache hit "
    text = STATS * 3 + reqid + "tokens: 0, need to load: 0\n"
    (log,) = inspect_paths([write(tmp_path, a_log=text)])
    assert log.format == "vllm_text"
    assert "also lines of lmcache_text" in log.why
    assert log.evidence_grade == "B"


def test_only_the_start_of_a_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text(STATS * 2_000 + "\x00garbage" * 10)
    (log,) = inspect_paths([tmp_path])
    assert log.format == "vllm_text"
    assert 100 < int(log.why.split()[0]) < 400  # 64 KiB of 2 000 lines


def test_json_has_the_promised_keys(tmp_path: Path) -> None:
    document = json.loads(api.sniff([write(tmp_path, a_log=STATS)]).to_json())
    assert [sorted(one) for one in document] == [
        sorted(
            (
                "path",
                "format",
                "confidence",
                "why",
                "evidence_grade",
                "supplies",
                "missing",
                "flags",
            )
        )
    ]


def test_a_path_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError) as raised:
        api.sniff([tmp_path / "none"])
    assert raised.value.code == "KVT-I001"


@pytest.mark.parametrize("entry", all_formats(), ids=lambda entry: entry.name)
def test_every_format_says_what_is_missing_in_the_words_of_the_audit(entry: object) -> None:
    missing = getattr(entry, "missing", {})
    assert set(missing) <= set(CAPABILITIES)
