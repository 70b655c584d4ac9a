"""Weka conversations: nested agents, ids that mean nothing outside a conversation, copies."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kvtrace.ingest.contract import RequestRow
from kvtrace.ingest.formats.weka import FORMATS
from kvtrace.ingest.pipeline import ingest_paths
from kvtrace.ingest.registry import all_formats
from tests.formats.reading import DATA, Reading, read_bytes, sniffed

WEKA = FORMATS[0]
GOOD = (DATA / "weka" / "conversation.json").read_bytes()
LINES = (DATA / "weka" / "conversations.jsonl").read_bytes()
DAMAGED = (DATA / "weka" / "damaged.jsonl").read_bytes()


def conversation(**changed: object) -> dict[str, object]:
    request = {"t": 0.5, "type": "n", "model": "m", "in": 130, "out": 7, "hash_ids": [1, 2]}
    return {
        "id": "talk_1",
        "block_size": 64,
        "hash_id_scope": "local",
        "requests": [request],
        **changed,
    }


def read(*talks: object) -> Reading:
    return read_bytes(WEKA, "\n".join(json.dumps(talk) for talk in talks).encode())


def leading_hits(rows: list[RequestRow]) -> list[int]:
    """Blocks of each request's leading run that an earlier request held."""
    seen: set[int] = set()
    hits: list[int] = []
    for row in rows:
        keys = row.block_keys or []
        hits.append(next((at for at, key in enumerate(keys) if key not in seen), len(keys)))
        seen.update(keys)
    return hits


def test_conversation_with_agents() -> None:
    reading = read_bytes(WEKA, GOOD)
    rows = reading.requests
    # main turn 0 · agent_001 of two turns · an agent that was only launched · main turn 1
    assert [(row.session_id, row.turn) for row in rows] == [
        ("talk_7", 0),
        ("talk_7/agent_001", 0),
        ("talk_7/agent_001", 1),
        ("talk_7", 1),
    ]
    assert [row.request_type for row in rows] == [None, "subagent", "subagent", None]
    assert [row.llm for row in rows] == ["big-x", "small-x", "small-x", "big-x"]
    assert [row.arrived_at_ns for row in rows] == [
        0,
        3_250_000_000,
        4_125_000_000,
        9_000_000_000,
    ]
    assert [row.prompt_tokens for row in rows] == [200, 150, 260, 330]
    assert [row.output_tokens for row in rows] == [11, 4, 5, 12]
    assert [row.e2e_ns for row in rows] == [2_500_000_000, 700_000_000, None, 3_000_000_000]
    assert [row.ttft_ns for row in rows] == [None, None, None, 1_250_000_000]
    assert [row.ttft_from for row in rows] == [None, None, None, "client"]
    # ids: 1 2 3 · 1 9 · 1 9 10 11 · 1 2 3 4 5 — agents share the ids of their conversation
    assert leading_hits(rows) == [0, 1, 2, 3]
    context = reading.context
    assert (context.clock, context.block_scope) == ("relative", "file")
    assert (context.found_block_size_tokens, context.partial_tail) == (64, "dropped")
    assert context.clock_resolution_ns == 1_000_000  # 4.125
    assert reading.note_codes == set()
    assert context.tally.used == 1


def test_local_ids_of_two_conversations_are_different_blocks() -> None:
    reading = read_bytes(WEKA, LINES)
    rows = reading.requests
    # line 1: ids 1 2 · line 2: ids 1 2 of another conversation · line 3 is line 1 under a new id
    assert leading_hits(rows) == [0, 0, 2]
    assert [row.session_id for row in rows] == ["talk_1", "talk_2", "talk_2"]
    assert reading.ignored == {"duplicate_conversation": 1}
    assert reading.context.clock == "order"
    assert reading.note_codes == {"no_common_clock"}


def test_global_ids_mean_the_same_in_all_conversations() -> None:
    other = conversation(id="talk_2", tool_tokens=1, hash_id_scope="global")
    first = conversation(hash_id_scope="global")
    second_requests = [{"t": 1, "type": "n", "in": 64, "out": 1, "hash_ids": [1]}]
    reading = read(first, {**other, "requests": second_requests})
    assert leading_hits(reading.requests) == [0, 1]
    assert reading.context.block_scope == "global"


def test_scope_and_block_size_must_be_those_of_the_file() -> None:
    reading = read(
        conversation(),
        conversation(hash_id_scope="global"),
        conversation(block_size=16),
        conversation(hash_id_scope="mine"),
        conversation(block_size=0),
    )
    assert reading.rejected == [(line, "invalid_field") for line in (2, 3, 4, 5)]


def test_bad_requests_are_left_out_and_said() -> None:
    reading = read_bytes(WEKA, DAMAGED)
    # line 1: 1 of 6 requests is usable · line 2: none is · line 3: no list · line 4: cut
    assert [row.prompt_tokens for row in reading.requests] == [130]
    assert reading.rejected == [
        (2, "invalid_field"),
        (3, "invalid_field"),
        (4, "invalid_json"),
    ]
    (note,) = reading.context.notes
    assert (note.code, note.severity) == ("requests_left_out", "warning")
    assert note.message.startswith("5 requests")


def test_agent_whose_times_start_anew_is_shifted() -> None:
    agent = {
        "t": 20.0,
        "type": "subagent",
        "agent_id": "a",
        "requests": [{"t": 0.5, "type": "n", "in": 1, "out": 1}],
    }
    reading = read(conversation(requests=[agent]))
    assert [row.arrived_at_ns for row in reading.requests] == [20_500_000_000]
    assert "agent_clock_assumed" in reading.note_codes
    assert reading.context.evidence_grade == "L"


@pytest.mark.parametrize(("start", "first"), [("NaN", 1), (1, "sNaN"), ("Infinity", "NaN")])
def test_times_that_are_no_numbers(start: object, first: object) -> None:
    inner = {"t": first, "type": "n", "in": 1, "out": 1}
    agent = {"t": start, "type": "subagent", "requests": [inner]}
    plain = {"t": 0, "type": "n", "in": 5, "out": 1}
    reading = read(conversation(requests=[plain, agent]))
    assert [row.prompt_tokens for row in reading.requests] == [5]
    assert "requests_left_out" in reading.note_codes


def test_one_agent_before_its_start_tells_the_basis_of_all() -> None:
    def agent(start: float, first: float) -> dict[str, object]:
        inner = {"t": first, "type": "n", "in": 1, "out": 1}
        return {"t": start, "type": "subagent", "agent_id": f"a{start}", "requests": [inner]}

    reading = read(conversation(requests=[agent(2.0, 5.0), agent(20.0, 1.0)]))
    assert [row.arrived_at_ns for row in reading.requests] == [7_000_000_000, 21_000_000_000]


def test_empty_conversation_carries_nothing() -> None:
    assert read(conversation(requests=[])).ignored == {"empty_conversation": 1}


def test_agents_inside_agents_end_somewhere() -> None:
    entry: dict[str, object] = {"t": 0, "type": "n", "in": 1, "out": 1}
    for _ in range(40):
        entry = {"t": 0, "type": "subagent", "requests": [entry]}
    plain = {"t": 0, "type": "n", "in": 5, "out": 1}
    reading = read(conversation(requests=[plain, entry]))
    assert [row.prompt_tokens for row in reading.requests] == [5]
    assert "requests_left_out" in reading.note_codes


@pytest.mark.parametrize("data", [GOOD, LINES, DAMAGED])
def test_it_is_recognised(data: bytes) -> None:
    assert sniffed(all_formats(), data) == "weka"


def test_long_conversation_is_recognised_by_its_start() -> None:
    request = json.dumps({"t": 0, "type": "n", "in": 64, "out": 1, "hash_ids": [1]})
    talk = json.dumps(conversation())
    cut = talk.replace("[{", "[" + f"{request}," * 70_000 + "{", 1)[:4_000_000]
    assert sniffed(all_formats(), cut.encode()) == "weka"


def test_conversations_of_a_folder_add_up_without_a_common_clock(tmp_path: Path) -> None:
    conversation = {
        "models": ["m"],
        "block_size": 64,
        "hash_id_scope": "local",
        "tool_tokens": 0,
        "system_tokens": 0,
        "requests": [
            {"t": 0.0, "type": "n", "in": 130, "out": 3, "hash_ids": [1, 2], "api_time": 0.5},
            {"t": 9.0, "type": "n", "in": 200, "out": 4, "hash_ids": [1, 2, 3], "api_time": 0.5},
        ],
    }
    for name in ("a", "b"):
        (tmp_path / f"{name}.json").write_text(json.dumps({"id": name} | conversation))
    ingested = ingest_paths([tmp_path], salt=b"salt")
    assert ingested.totals.requests == 4
    # ids restart in each file: each conversation reuses its own two blocks, not the other's
    assert ingested.totals.distinct_blocks == 6
    assert ingested.frames["requests"]["arrived_at_ns"].null_count() == 4
    assert "no_common_clock" in {note.code for note in ingested.totals.notes}
    alone = ingest_paths([tmp_path / "a.json"], salt=b"salt")
    assert alone.frames["requests"]["arrived_at_ns"].to_list() == [0, 9_000_000_000]
