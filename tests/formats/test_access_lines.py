"""Access lines of HTTP servers: whatever their URL imitates, they are nothing else."""

from __future__ import annotations

import pytest

from kvtrace.ingest.registry import all_formats
from tests.formats.reading import read_log

DIALECTS = tuple(entry for entry in all_formats() if entry.dialect is not None)
STATS_END = (
    "1.0 tokens/s, Running: 1 reqs, Waiting: 0 reqs, GPU KV cache usage: 0.1%, Prefix cache hit"
    " rate: 1.0%"
)
BATCH_END = ", token usage: 0.10, #running-req: 2, #queue-req: 3"


@pytest.mark.parametrize("url", [f"/v1?x={STATS_END}", BATCH_END, f"/health{BATCH_END}"])
@pytest.mark.parametrize(
    "front",
    [
        "INFO:     192.0.2.7:5123 - ",
        "192.0.2.7:5123 - ",
        "(APIServer pid=7) INFO:     192.0.2.7:5123 - ",
        "192.0.2.7 - - [10/Oct/2025:13:55:36 -0700] ",
    ],
)
def test_a_url_that_imitates_a_torn_line_is_an_access_line(front: str, url: str) -> None:
    readings = read_log(DIALECTS, f'{front}"GET {url} HTTP/1.1" 200 OK\n'.encode())
    reading = readings["vllm_text"]
    reason = "health_check" if url.startswith("/health") else "access_line"
    assert (reading.rejected, reading.ignored) == ([], {reason: 1})


def test_an_access_line_with_a_torn_line_behind_it_is_damage() -> None:
    line = f'INFO:     192.0.2.7:5123 - "GET /v1 HTTP/1.1" 200 OK{STATS_END}\n'
    assert read_log(DIALECTS, line.encode())["vllm_text"].rejected == [(1, "damaged_line")]
