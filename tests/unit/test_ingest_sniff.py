"""Sniffing: formats are told by content, with a reason; what is not known is named."""

from __future__ import annotations

import pytest

from kvtrace.ingest.registry import all_formats, format_named
from kvtrace.ingest.sniff import HEAD_BYTES, build_head, read_head, recognise
from tests.unit.ingest_formats import made_up

MOONCAKE = b'{"timestamp": 0, "input_length": 512, "output_length": 10, "hash_ids": [1]}\n'


def test_registry_lists_unique_names_with_their_facts() -> None:
    formats = all_formats()
    names = [entry.name for entry in formats]
    assert len(names) == len(set(names))
    assert {"mooncake", "azure", "burstgpt", "bailian", "vllm_timing", "vllm_text"} <= set(names)
    assert all(entry.title and entry.versions for entry in formats)
    assert all(entry.supplies or entry.missing for entry in formats)
    assert format_named("mooncake") in formats
    assert format_named("no such format") is None


def test_best_guess_wins_with_its_reason() -> None:
    found = recognise(MOONCAKE, "a.log", formats=all_formats())
    assert found.format is format_named("mooncake")
    assert found.framing == "lines"
    assert found.reason == "1 of the first 1 objects have hash_ids and lengths"


def test_array_of_objects_is_framed_by_elements_even_for_a_line_format() -> None:
    found = recognise(b"[" + MOONCAKE + b"]", "a.jsonl", formats=all_formats())
    assert found.format is format_named("mooncake")
    assert found.framing == "json"


def test_text_log_that_starts_with_a_bracket_is_no_array() -> None:
    data = b'[pod/x] INFO\n{"format": "made_up"}\n'
    found = recognise(data, "a.log", formats=[made_up("made_up")])
    assert found.format is None or found.framing == "lines"


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "the file is empty"),
        (b"\n \n", "the file has only blank lines"),
        (
            b"PAR1\x15\x04",
            "Parquet data that cannot be read: damaged, cut, or past 1 GiB",
        ),
        (
            b"a.jsonl".ljust(257, b"\x00") + b"ustar\x0000" + b'\n{"input_length": 1}\n',
            "a tar archive; unpack it first and name the files in it (`tar -xf`)",
        ),
        (
            b'PK\x03\x04\n{"input_length": 5, "hash_ids": [1]}\n',
            "a zip archive; unpack it first and name the files in it (`unzip`)",
        ),
        (
            b"7z\xbc\xaf\x27\x1c\x00\x04",
            "a 7z archive; unpack it first and name the files in it (`7z x`)",
        ),
        (
            b"\x80\x04\x95\x00",
            "a Python pickle, which is a program and is not run; `--allow-inert-pickle` reads the "
            "request dumps of SGLang from it in a process that imports nothing",
        ),
        (b"\x00" * 600, "the file has only NUL bytes"),
        (bytes(range(200)), "binary data of no known kind"),
        (b"hello\nworld\n", "no known format matches its first lines"),
        (b'{"b": 1, "a b\\u0000": 2}\n', "JSON objects of no known format (keys: b)"),
        (b"x,y\n1,2\n", "CSV of no known format (columns: x, y)"),
    ],
)
def test_unknown_files_say_why(data: bytes, reason: str) -> None:
    found = recognise(data, "a", formats=all_formats())
    assert (found.format, found.reason) == (None, reason)


def test_head_is_whole_lines_and_the_stream_stays_whole() -> None:
    line = b"x" * 99 + b"\n"
    chunks = [line * 400] * 4  # 160 000 bytes
    head, stream, is_whole = read_head(chunks)
    assert len(head) == HEAD_BYTES // 100 * 100
    assert b"".join(stream) == line * 1600
    assert not is_whole


def test_head_reaches_to_the_end_of_a_long_first_line() -> None:
    first = b'{"a": "' + b"x" * 3 * HEAD_BYTES + b'"}\n'
    head, stream, _is_whole = read_head([first[:1000], first[1000:], b"rest\n" * 1000])
    assert head == first
    assert b"".join(stream) == first + b"rest\n" * 1000


def test_head_of_a_small_file_is_all_of_it() -> None:
    assert read_head([b"a\n", b"b"])[2]


def test_head_offers_objects_lines_and_csv_cells() -> None:
    head = build_head(b'{"a": NaN}\n\n[1]\n{"a": 2}\n{cut', "x")
    assert [entry["a"] for entry in head.json_objects][1:] == [2]
    assert head.lines == ('{"a": NaN}', "[1]", '{"a": 2}', "{cut")
    assert build_head(b'"A b",c\r\n1,2\r\n', "x").csv_header == ("A b", "c")
    assert build_head(b"1,2\r\n", "x").csv_header == ()
    assert build_head(b'{cut\n{"a": 1}\n', "x").json_objects == ({"a": 1},)
    assert build_head(b'{\n"a": {\n"b": 1}}\n', "x").json_objects == ({"a": {"b": 1}},)
