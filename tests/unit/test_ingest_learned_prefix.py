"""A constant text before vLLM's prefix is learned; one that a user could have written is not."""

from __future__ import annotations

import pytest

from kvtrace.ingest.formats.vllm_text import FORMATS
from tests.formats.reading import Reading, read_log, sniffed

VLLM = FORMATS[0]


def read(lines: list[str]) -> Reading:
    return read_log(FORMATS, ("\n".join(lines) + "\n").encode())["vllm_text"]


def added(number: int, before: str = "", process: str = "") -> str:
    stamp = f"10-05 08:{number // 60 % 60:02d}:{number % 60:02d}"
    return f"{process}{before}INFO {stamp} [async_llm.py:271] Added request r-{number}."


@pytest.mark.parametrize("before", ["[node-7] ", "prod: ", "llama 70B ", "-", "INFO "])
@pytest.mark.parametrize("process", ["", "(APIServer pid=1) "])
def test_a_text_before_most_lines_is_taken_off(before: str, process: str) -> None:
    reading = read([added(number, before, process) for number in range(200)])
    assert len(reading.requests) == 200
    assert reading.context.tally.used == 200
    assert [row.line for row in reading.requests] == list(range(1, 201))


def test_three_lines_of_a_short_file_are_enough() -> None:
    lines = [added(number, "site-a ") for number in range(3)]
    assert len(read(lines).requests) == 3
    assert sniffed(FORMATS, "\n".join(lines).encode()) == "vllm_text"
    assert read(lines[:2]).requests == []


def test_other_lines_between_do_not_matter_while_they_are_fewer() -> None:
    lines = []
    for number in range(60):
        lines += [added(number, "site-a ")] + ["Traceback:"] * (number % 2)
    assert len(read(lines).requests) == 60


@pytest.mark.parametrize(
    "before",
    [
        "user wrote: 'x ",  # a quote: somebody's text
        'msg="',
        "{prompt} ",
        "tab\t",
        "x" * 65,
    ],
)
def test_a_text_that_may_be_a_users_is_not_believed(before: str) -> None:
    reading = read([added(number, before) for number in range(100)])
    assert reading.requests == []
    assert sum(reading.ignored.values()) == 100


def test_a_text_before_few_lines_is_not_believed() -> None:
    lines = ["something else"] * 100
    lines[10:10] = [added(number, "user wrote: ") for number in range(20)]
    assert read(lines).requests == []


def test_nothing_is_believed_beside_lines_without_it() -> None:
    lines = [added(number, "user wrote: ") for number in range(50)]
    lines.insert(20, added(7))
    reading = read(lines)
    assert [row.request_id for row in reading.requests] == ["r-7"]


def test_only_the_learned_text_is_taken_off_later() -> None:
    lines = [added(number, "site-a ") for number in range(80)]
    lines += [added(200, "site-b "), added(201), added(202, "site-a site-a ")]
    assert [row.request_id for row in read(lines).requests][80:] == ["r-201"]


def test_a_text_that_changes_is_not_believed() -> None:
    reading = read([added(number, f"request {number}: ") for number in range(200)])
    assert reading.requests == []
