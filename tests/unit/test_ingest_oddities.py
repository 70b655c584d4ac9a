"""Flags of rows come out as notes, and impossible values are in no number."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from kvtrace.ingest.contract import RequestRow
from kvtrace.ingest.oddities import ODDITIES, settle_row
from kvtrace.ingest.pipeline import Ingested, ingest_paths

ROOT = Path(__file__).parents[2]
CALL: dict[str, object] = {
    "call_type": "acompletion",
    "litellm_call_id": "c",
    "status": "success",
    "stream": True,
    "startTime": 1_780_000_000.0,
    "completionStartTime": 1_780_000_000.5,
    "endTime": 1_780_000_002.0,
    "prompt_tokens": 100,
    "completion_tokens": 10,
}


def ingested(tmp_path: Path, *calls: dict[str, object]) -> Ingested:
    lines = [json.dumps(CALL | {"id": f"i{n}"} | call) for n, call in enumerate(calls)]
    path = tmp_path / "calls.jsonl"
    path.write_text("\n".join(lines) + "\n")
    return ingest_paths([path], salt=b"s")


def cached(count: int, total: int) -> dict[str, object]:
    usage = {"prompt_tokens": 100, "prompt_tokens_details": {"cached_tokens": count}}
    return {"metadata": {"usage_object": usage}, "total_tokens": total}


def test_cached_tokens_above_the_prompt_are_unknown_and_said_once(tmp_path: Path) -> None:
    odd = cached(900, 110)  # the total says that the prompt is 100 and holds everything
    run = ingested(tmp_path, cached(64, 110), odd, odd)
    rows = run.frames["requests"]
    assert rows["cached_tokens"].to_list() == [64, None, None]
    assert (run.totals.cached_tokens, run.totals.cached_known_requests) == (64, 1)
    (note,) = [one for one in run.notes if one.code == "cached_above_prompt"]
    assert note.severity == "warning"
    assert note.message.startswith("2 requests have more cached tokens than prompt tokens")
    assert "(first calls.jsonl:2)" in note.message
    (source,) = run.sources
    assert [one.code for one in source.notes] == ["cached_above_prompt"]


def test_reversed_times_and_other_totals_are_said(tmp_path: Path) -> None:
    run = ingested(
        tmp_path,
        {},
        {"endTime": 1_779_999_999.0},
        {"total_tokens": 500},
        {"metadata": "{broken"},
    )
    codes = {note.code: note.message for note in run.notes}
    assert "(first calls.jsonl:2)" in codes["time_order"]
    assert "(first calls.jsonl:3)" in codes["total_mismatch"]
    assert "(first calls.jsonl:4)" in codes["metadata_unreadable"]
    assert run.frames["requests"]["e2e_ns"].to_list()[1] is None


def test_a_first_token_after_the_end_is_unknown(tmp_path: Path) -> None:
    run = ingested(tmp_path, {"completionStartTime": 1_780_000_003.0}, {})
    rows = run.frames["requests"]
    assert rows["ttft_ns"].to_list() == [None, 500_000_000]
    assert rows["ttft_from"].to_list() == [None, "arrival"]
    assert [note.code for note in run.notes] == ["ttft_above_e2e"]


@pytest.mark.parametrize(("cached_tokens", "kept"), [(10, 10), (11, None), (0, 0)])
def test_tiers_go_with_their_sum(cached_tokens: int, kept: int | None) -> None:
    row = RequestRow(
        offset=0,
        line=1,
        prompt_tokens=10,
        cached_tokens=cached_tokens,
        cached_device_tokens=cached_tokens,
    )
    assert not settle_row(row)
    assert (row.cached_tokens, row.cached_device_tokens) == (kept, kept)
    assert row.flags == (() if kept is not None else ("cached_above_prompt",))


def test_flags_of_contradictions_have_words() -> None:
    """Every flag that says that two values contradict each other is in the table."""
    source = "".join(path.read_text() for path in (ROOT / "kvtrace" / "ingest").rglob("*.py"))
    literal = re.findall(r'flags\.append\("([a-z0-9_]+)"\)', source)
    named = re.findall(r'^_?[A-Z_]*FLAG: Final = "([a-z0-9_]+)"', source, re.MULTILINE)
    odd = {flag for flag in (*literal, *named) if re.search("mismatch|above|order|conflict", flag)}
    assert len(odd) >= 8
    assert odd - ODDITIES.keys() == set()
