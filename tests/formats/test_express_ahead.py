"""Blocks told ahead come in file order with the same runs, whichever process told them."""

from __future__ import annotations

import sys

import pytest

from kvtrace.ingest.contract import ReadContext, Tally
from kvtrace.ingest.files.frame import LineBlock
from kvtrace.ingest.formats.vllm_text.express import ADDED, BARE, express_kinds
from kvtrace.ingest.textlog import ahead
from kvtrace.ingest.textlog.ahead import (
    AWAY_BLOCKS,
    SLOT_BYTES,
    LookAhead,
    SecondProcess,
    SecondProcessError,
    second_process,
)
from kvtrace.ingest.textlog.express import ExpressLane, Run

HEAD = "(APIServer pid=1) INFO 03-02 08:00:00 [logger.py:39] "
PROMPT = (
    "Received request {id}: prompt: 'a', params: SamplingParams(n=1), prompt_token_ids: [1, 2, 3],"
    " prompt_embeds shape: None, lora_request: None."
)


def context() -> ReadContext:
    return ReadContext("sample", Tally(), 0, token_key=b"k" * 32)


def blocks(count: int, lines: int = 50) -> list[LineBlock]:
    """Blocks of requests with token ids, with a line for the careful way at the end of each."""
    made, offset, line = [], 0, 1
    for block in range(count):
        texts = []
        for number in range(lines):
            request_id = f"r{block}-{number}"
            texts += [
                HEAD + PROMPT.replace("{id}", request_id),
                f"{HEAD}Added request {request_id}.",
            ]
        data = ("\n".join([*texts, f"careful {block}"]) + "\n").encode()
        made.append(LineBlock(offset, line, data))
        offset, line = offset + len(data), line + len(texts) + 1
    return made


def told(
    given: list[LineBlock], *, start_bytes: int = 0, is_alone: bool = False
) -> list[tuple[LineBlock, list[Run] | None]]:
    start = None if is_alone else second_process(express_kinds, context())
    lane = ExpressLane(express_kinds(context()))
    return list(LookAhead(lane, start, start_bytes=start_bytes).told(given))


def test_two_processes_give_what_one_gives() -> None:
    given = blocks(60)
    assert told(given) == told(given, is_alone=True)


def test_results_of_the_second_process_come_in_order() -> None:
    lane, given = ExpressLane(express_kinds(context())), blocks(20)
    second = SecondProcess(express_kinds, context())
    try:
        for at in range(0, len(given), AWAY_BLOCKS):
            some = given[at : at + AWAY_BLOCKS]
            for block in some:
                assert second.can_take(block.data)
                second.send(block.data)
            assert not second.can_take(b"")
            for block in some:
                assert second.has_result(wait=True)
                assert second.result() == list(lane.scan(block.data, 0, 0))
        assert not second.can_take(bytes(SLOT_BYTES + 1))
    finally:
        second.close()


@pytest.mark.parametrize(
    "program",
    [
        "raise SystemExit(1)",
        "import sys; sys.stdin.buffer.read(300)",
        "import sys; sys.stdout.buffer.write(bytes(7) + bytes([3]) + b'abc'); sys.stdout.flush();"
        " sys.stdin.read()",
    ],
)
def test_what_a_dying_process_had_is_told_here(
    monkeypatch: pytest.MonkeyPatch, program: str
) -> None:
    monkeypatch.setattr(ahead, "_PROGRAM", program)
    given = blocks(60)
    assert told(given) == told(given, is_alone=True)


def test_what_a_stuck_process_has_is_told_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ahead, "_PROGRAM", "import time; time.sleep(600)")
    monkeypatch.setattr(ahead, "_PATIENCE_S", 0.05)
    given = blocks(60)
    assert told(given) == told(given, is_alone=True)


def test_without_an_interpreter_there_is_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nonexistent/python")
    with pytest.raises(SecondProcessError):
        SecondProcess(express_kinds, context())
    given = blocks(3)
    assert told(given) == told(given, is_alone=True)


def test_one_processor_has_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _pid: {0})
    assert second_process(express_kinds, context()) is None


def test_a_log_of_other_lines_is_mostly_read_past_the_lane() -> None:
    given = [LineBlock(0, 1, b"words of another program\n")] * 20
    past = [runs is None for _block, runs in told(given)]
    assert past == [False] + [True] * 15 + [False] + [True] * 3


def test_received_and_added_of_one_request_are_one_line_of_the_lane() -> None:
    lane = ExpressLane(express_kinds(context()))
    bare = "Received request a: params: SamplingParams(n=1), lora_request: None."
    texts = [bare, "Added request a.", "Added request a.", bare, "Added request b."]
    data = "".join(f"{HEAD}{text}\n" for text in texts).encode()
    (run,) = lane.scan(data, 0, 0)
    assert run.told_lines == 5
    assert [(line[0], line[2], line[7] and line[7][2]) for line in run.told] == [
        (BARE, 0, 1),
        (ADDED, 2, None),
        (BARE, 3, None),
        (ADDED, 4, None),
    ]
