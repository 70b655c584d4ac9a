"""The short way of plain vLLM lines gives what all layers give, or sends the line through them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvtrace.ingest.contract import Record, Tally
from kvtrace.ingest.files.layers import LinePeeler
from kvtrace.ingest.textlog.prefixes import parse_plain, parse_prefix

PLAIN = [
    b"INFO 05-11 12:04:17 [logger.py:39] Added request a.",
    b"INFO 01-12 09:10:11 logger.py:37] Added request a.",
    b"(APIServer pid=1) DEBUG 10-05 08:01:10 [entrypoints/logger.py:53] Request a details: x",
    b"(EngineCore_DP0 pid=272) WARNING 02-30 25:00:00 [x.py:1] no such time",
]
OTHERS = [
    b"(EngineCore_DP0 pid=2) (APIServer pid=1) INFO 10-05 08:01:10 [loggers.py:127] two",
    b"(VllmWorker rank=0 pid=9) INFO 10-05 08:01:10 [loggers.py:127] rank",
    b"(ServeReplica:app:Dep pid=9, ip=10.0.0.1) INFO 10-05 08:01:10 [loggers.py:127] ray",
    b"(ServeReplica:app:Dep pid=9) INFO 10-05 08:01:10 [loggers.py:127] ray",
    b"\x1b[32mINFO\x1b[0m 10-05 08:01:10 [loggers.py:127] colour",
    b"INFO 10-05 08:01:10 [loggers.py:127] a bar was\r redrawn",
    b"INFO 10-05 08:01:10 [loggers.py:127] padded\x00\x00",
    b"INFO:     10.0.0.1:1 - GET",
    b"",
]


def peeled(data: bytes) -> tuple[object, ...] | None:
    """What all layers give; None if they find no line of vLLM."""
    line = LinePeeler(Tally()).feed(Record(0, 1, data))
    if line is None or line.is_formatted:
        return None
    prefix = parse_prefix(line.text, has_instant=line.instant is not None)
    if prefix.kind != "vllm" or line.instant is not None or line.naive is not None:
        return None
    message = line.text[prefix.end :]
    stamp = None if prefix.is_time_wrong else prefix.yearless
    return line.text, message, line.process, line.writer, prefix.level, prefix.label, stamp


@pytest.mark.parametrize("data", PLAIN)
def test_plain_lines_go_the_short_way(data: bytes) -> None:
    plain = parse_plain(data)
    assert plain is not None
    assert tuple(plain) == peeled(data)


@pytest.mark.parametrize("data", OTHERS)
def test_other_lines_go_through_all_layers(data: bytes) -> None:
    assert parse_plain(data) is None


@given(
    st.sampled_from(PLAIN + OTHERS),
    st.lists(st.tuples(st.integers(0, 80), st.binary(max_size=3)), max_size=3),
)
def test_the_short_way_never_differs(data: bytes, edits: list[tuple[int, bytes]]) -> None:
    for at, piece in edits:
        data = data[:at] + piece + data[at + len(piece) :]
    plain = parse_plain(data)
    assert plain is None or tuple(plain) == peeled(data)
