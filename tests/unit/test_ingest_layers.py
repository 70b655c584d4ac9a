"""Outer layers: peeled at the start of a line only, pieces joined, nothing lost."""

from __future__ import annotations

import json

import pytest

from kvtrace.ingest.contract import Record, Tally
from kvtrace.ingest.files.layers import LinePeeler, PeeledLine, skip_progress_bar
from kvtrace.ingest.values.pyrepr import (
    checked_list_length,
    outside_pattern,
    repr_to_json,
    string_end,
)


def peel_all(*lines: str) -> tuple[list[PeeledLine], Tally]:
    tally = Tally()
    peeler = LinePeeler(tally)
    records = [Record(10 * at, at + 1, line.encode()) for at, line in enumerate(lines)]
    peeled = [line for record in records if (line := peeler.feed(record)) is not None]
    peeler.flush()
    return peeled, tally


@pytest.mark.parametrize(
    "outer",
    [
        "",
        "(APIServer pid=1) ",
        "(EngineCore_DP0 pid=2) (APIServer pid=1) ",
        "(VllmWorker rank=0 pid=12) ",
        "(ServeReplica:app:Dep pid=2001, ip=192.0.2.4) ",
        "2025-06-01T12:00:00.123456789Z ",
        "2025-06-01T14:00:00.5+02:00 stdout F (APIServer pid=1) ",
        "Jun  1 12:00:00 gpu01 vllm[4321]: ",
        "Jun 01 12:00:00 vllm[4321]: ",
        "2025-06-01T12:00:02+0000 gpu01 vllm[4321]: ",
        "<30>1 2025-06-01T12:00:03.000Z gpu01 vllm 4321 - - ",
        "[pod/llm-0/server] ",
        "0: ",
        " 3: ",
        "[4711] ",
        "[pod/llm-0/server] 2025-06-01T12:00:00.123456789Z ",
        "[pod/llm-0/server] 2025-06-01T12:00:00.1Z (ServeReplica:a:b pid=2, ip=192.0.2.4) ",
        "vllm-1  | ",
        "\x1b[36mvllm-1  | \x1b[0m2025-06-01T12:00:00.1Z ",
        "Jun 01 12:00:00.123456 gpu01 vllm[4321]: ",
        '<30>1 2025-06-01T12:00:03Z gpu01 vllm 4321 ID1 [a@1 b="c \\" ] d"][e@1] ',
        "\x1b[0;36m(APIServer pid=1)\x1b[0;0m ",
        "100%|####| 67/67 [00:20<00:00, 3.30it/s]\r",
    ],
)
def test_layers_come_off(outer: str) -> None:
    (line,), _ = peel_all(f"{outer}INFO 06-01 12:00:00 [x.py:1] hello")
    assert line.text == "INFO 06-01 12:00:00 [x.py:1] hello"


def test_text_inside_a_message_is_no_layer() -> None:
    text = 'Receive: text="(APIServer pid=1) INFO 06-01 12:00:00 [x.py:1] Added request b."'
    (line,), _ = peel_all(text)
    assert line.text == text
    assert line.process is None


def test_docker_pieces_are_joined_at_the_first_record() -> None:
    peeled, tally = peel_all(
        '{"log": "INFO a", "stream": "stdout", "time": "2025-05-11T12:04:28.000000001Z"}',
        '{"log": "stray\\n", "stream": "stderr", "time": "2025-05-11T12:04:28.5Z"}',
        '{"log": "b\\n", "stream": "stdout", "time": "2025-05-11T12:04:29Z"}',
    )
    assert [line.text for line in peeled] == ["stray", "INFO ab"]
    assert peeled[1].record.line == 1
    assert peeled[1].instant is not None
    assert peeled[1].instant.ns % 10**9 == 1
    assert tally.ignored == {"continued_piece": 1}


def test_a_container_in_a_container() -> None:
    inner = [
        '{"log": "INFO 06-01 12:00:00 [x.py:1] a", "stream": "stdout", "time": "t"}',
        '{"log": "bc\\n", "stream": "stdout", "time": "t"}',
    ]
    pieces = [(inner[0][:20], "P"), (inner[0][20:], "F"), (inner[1], "F")]
    stamps = ("2025-06-01T12:00:01.5Z", "2025-06-01T12:00:02Z", "2025-06-01T12:00:03Z")
    peeled, tally = peel_all(
        *(f"{at} stdout {end} {text}" for at, (text, end) in zip(stamps, pieces, strict=True))
    )
    assert [line.text for line in peeled] == ["INFO 06-01 12:00:00 [x.py:1] abc"]
    assert peeled[0].instant is not None
    assert peeled[0].instant.ns == 1_748_779_201_500_000_000
    assert peeled[0].record.line == 1
    assert tally.ignored == {"continued_piece": 2}


def test_a_collectors_json_around_a_whole_line() -> None:
    text = "[2025-06-01 12:00:00,000] LMCache INFO: Stored 1 tokens"
    (message, log, bare), _ = peel_all(
        json.dumps({"@timestamp": "2025-06-01T12:00:00Z", "message": f"(Worker pid=2) {text}"}),
        json.dumps({"time": "t", "stream": "stdout", "log": f"\x1b[32m{text}\x1b[0m\n"}),
        json.dumps({"stream": "stdout", "log": "slot x: id 0 | task 1 | ", "host": "h"}),
    )
    assert [line.text for line in (message, log, bare)] == [text, text, "slot x: id 0 | task 1 | "]
    assert [line.is_formatted for line in (message, log, bare)] == [False, False, False]
    assert [line.document for line in (message, log, bare)] == [None, None, None]
    assert message.process == "Worker"
    assert message.instant is not None


def test_a_label_leaves_the_blanks_behind_it() -> None:
    (line,), _ = peel_all("0:        eval time =     900.00 ms")
    assert line.text == "       eval time =     900.00 ms"


def test_missing_last_piece_is_damage() -> None:
    _, tally = peel_all("2025-06-01T12:00:01.0Z stdout P INFO 06-01 cut")
    assert [(record.line, reason) for record, reason, _ in tally.rejects] == [(1, "damaged_line")]


def test_padding_is_ignored() -> None:
    peeled, tally = peel_all("\x00" * 100, "\x00\x00text")
    assert [line.text for line in peeled] == ["text"]
    assert tally.ignored == {"padding": 1}


def test_json_formatter_gives_message_and_date() -> None:
    written = '{"asctime": "2026-11-20 09:00:10,123", "message": "Added request a."}'
    (line,), _ = peel_all(written)
    assert line.text == "Added request a."
    assert line.document == written  # its other keys are a dialect's to read
    assert line.is_formatted
    assert line.naive is not None
    assert line.naive.resolution_ns == 1_000_000


def test_json_formatter_names_its_process() -> None:
    known, unknown = '"processName": "EngineCore_DP0", "process": 7', '"process": "x"'
    (first, second), _ = peel_all(f'{{{known}, "message": "m"}}', f'{{{unknown}, "message": "m"}}')
    assert (first.process, first.writer) == ("EngineCore_DP0", "EngineCore_DP0 pid=7")
    assert (second.process, second.writer) == (None, None)


def test_json_that_is_no_log_line_stays() -> None:
    (line,), _ = peel_all('{"model": "m", "n": 1}')
    assert line.text == '{"model": "m", "n": 1}'
    assert line.document is None


def test_ray_tail_is_cut_only_behind_ray() -> None:
    tail = "hit 66.7% [repeated 2x across cluster] (Ray deduplicates logs by default.)"
    said = "prompt: ' [repeated 2x across cluster] ', x"
    behind = "(ServeReplica:a:b pid=1, ip=192.0.2.1) "
    (ray, quoted, document, plain), _ = peel_all(
        f"{behind}{tail}", f"{behind}{said}", f'{behind}{{"message": "m"}}{tail[9:]}', tail
    )
    assert ray.text == "hit 66.7%"
    assert quoted.text == said
    assert document.text == "m"
    assert plain.text == tail


def test_a_progress_bar_inside_a_container_leaves_its_time() -> None:
    text = "100%|####| 67/67 [00:20<00:00, 3.30it/s]\rINFO x"
    docker = json.dumps({"log": f"{text}\n", "stream": "stderr", "time": "2025-06-01T12:00:02Z"})
    peeled, _ = peel_all(f"2025-06-01T12:00:02Z stderr F {text}", docker)
    assert [line.text for line in peeled] == ["INFO x", "INFO x"]
    assert [line.instant and line.instant.ns for line in peeled] == [1_748_779_202 * 10**9] * 2


def test_progress_bar_in_front_is_skipped() -> None:
    assert skip_progress_bar("  7% 9/128 [00:31<06:40,  3.37s/it]INFO x") == "INFO x"
    assert skip_progress_bar("INFO x") == "INFO x"
    assert skip_progress_bar('said "3it/s]INFO x"') == 'said "3it/s]INFO x"'


def test_end_of_a_repr() -> None:
    assert string_end("'a\\'b' tail", 0) == 6
    assert string_end('"it\'s" tail', 0) == 6
    assert string_end("None, x", 0) == 4
    assert string_end("'never closed\\'", 0) is None
    assert string_end("[1]", 0) is None


def test_length_of_a_list_repr() -> None:
    assert checked_list_length("[]") == 0
    assert checked_list_length("[1]") == 1
    assert checked_list_length("[1, 2,3]") == 3


def test_processes_of_one_name_are_told_apart() -> None:
    peeled, _ = peel_all("(VllmWorker rank=0 pid=12) a", "(VllmWorker rank=1 pid=13) b", "c")
    assert [line.process for line in peeled] == ["VllmWorker", "VllmWorker", None]
    assert [line.writer for line in peeled] == [
        "VllmWorker rank=0 pid=12",
        "VllmWorker rank=1 pid=13",
        None,
    ]


def test_processes_of_several_pods_are_told_apart() -> None:
    peeled, _ = peel_all(
        "[pod/a/c] (APIServer pid=1) x",
        "[pod/b/c] 2025-06-01T12:00:02Z (APIServer pid=1) x",
        "[pod/b/c] x",
        "[pod/a/c] (APIServer pid=1) x",
    )
    assert [line.process for line in peeled] == ["APIServer", "APIServer", None, "APIServer"]
    assert [line.writer for line in peeled] == [
        "APIServer pid=1",
        "APIServer pid=1@1",
        "@1",
        "APIServer pid=1",
    ]


def test_request_events_of_sglang_are_no_formatted_messages() -> None:
    written = '{"timestamp": "2026-11-20T09:00:00", "event": "request.received", "rid": "a"}'
    (line,), _ = peel_all(written)
    assert line.text == written
    assert not line.is_formatted


def test_stop_is_found_outside_quotes_only() -> None:
    to_meta = outside_pattern(r"'meta': \{")
    text = """x="'meta': {", y='it\\'s \\'meta\\': {', 'meta': {}"""
    match = to_meta.match(text)
    assert match is not None
    assert text[match.end() :] == "'meta': {}"
    torn = to_meta.match("x='never closed 'meta': {}")
    assert torn is not None  # the apostrophe before meta closes the first: nothing is found
    assert "x='never closed 'meta': {}"[torn.end() :] == "': {}"


def test_repr_becomes_json() -> None:
    written = repr({"a": None, "b": [1, 2.5, (None, True)], "c": 'it\'s \n "x"', "d": "None"})
    assert json.loads(repr_to_json(written)) == {
        "a": None,
        "b": [1, 2.5, [None, True]],
        "c": 'it\'s \n "x"',
        "d": "None",
    }
    cut = """{'a': 'start' ... "e'nd", 'b': [1, 2] ... [3], 'n': nan, 'e': '\\x00\\u00e9'}"""
    assert json.loads(repr_to_json(cut)) == {
        "a": "starte'nd",
        "b": [1, 2, 3],
        "n": None,
        "e": "\0é",
    }
    assert json.loads(repr_to_json("{'a': None, 'b': False}")) == {"a": None, "b": False}
    assert repr_to_json("{'a': <object>}") == '{"a": <object>}'
    assert json.loads(repr_to_json("{'a': [1] ... [2]}")) == {"a": [1, 2]}


def test_every_text_comes_back_from_its_repr() -> None:
    hard = ("\\", "'", '"', "\n", "\0", "\x1b", "\x85", "é", "\u200b", "\U0001f600", "\ud800")
    pieces = (*hard, "n", "x41", "U", "None", " ... ", "(")
    for first in pieces:
        for second in pieces:
            for third in pieces:
                value = {"a": (first + second + third, None, -1.5), third: second + first}
                assert json.loads(repr_to_json(repr(value))) == {**value, "a": [*value["a"]]}


def test_a_repr_of_mere_quotes_is_left_as_it_is() -> None:
    text = "{'matched': [" + '"",' * 100_000 + "]}"
    assert repr_to_json(text) == text
