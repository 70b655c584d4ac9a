"""Framing: records with offset and line, blanks counted, long ones never held."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator

import pytest

from kvtrace.ingest.contract import Framing, Record
from kvtrace.ingest.files.frame import FrameCounts, frame


def framed(
    data: bytes, framing: Framing, *, size: int | None = None, limit: int | None = None
) -> tuple[list[Record], FrameCounts]:
    counts = FrameCounts() if limit is None else FrameCounts(max_record_bytes=limit)
    step = size or max(len(data), 1)
    chunks = [data[at : at + step] for at in range(0, len(data), step)]
    return list(frame(chunks, framing, counts)), counts


def texts(data: bytes, framing: Framing, **kwargs: int) -> list[bytes]:
    return [record.data for record in framed(data, framing, **kwargs)[0]]


def test_lines_carry_offset_and_number_and_blanks_are_counted() -> None:
    records, counts = framed(b"ab\n\n  \t\ncd\r\n\r\nef", "lines")
    assert records == [
        Record(0, 1, b"ab"),
        Record(8, 4, b"cd"),
        Record(14, 6, b"ef", terminated=False),
    ]
    assert (counts.delivered, counts.blank, counts.rows_in) == (3, 3, 6)


def test_last_line_needs_no_end_and_no_line_follows_the_last_end() -> None:
    assert texts(b"a\nb", "lines") == [b"a", b"b"]
    assert framed(b"a\nb\n", "lines")[1].rows_in == 2
    assert framed(b"", "lines")[1].rows_in == 0


@pytest.mark.parametrize("size", [1, 2, 3, 5, 7])
@pytest.mark.parametrize("framing", ["lines", "csv"])
def test_chunks_change_nothing(framing: Framing, size: int) -> None:
    data = b'a,b\r\n\n"x\n\ny",2\n"q""q",3\n  \nlast,"open\nnever closed'
    assert framed(data, framing, size=size)[0] == framed(data, framing)[0]


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_long_line_is_counted_not_delivered(size: int) -> None:
    records, counts = framed(b"ok\n" + b"x" * 50 + b"\nafter\n", "lines", size=size, limit=10)
    assert [(record.line, record.data) for record in records] == [(1, b"ok"), (3, b"after")]
    long = counts.too_long[0]
    assert (long.offset, long.line, long.byte_length) == (3, 2, 50)
    assert counts.rows_in == 3
    assert framed(b"ok\n" + b"x" * 50, "lines", size=size, limit=10)[1].rows_in == 2


def test_long_line_is_not_held_in_memory() -> None:
    counts = FrameCounts(max_record_bytes=1 << 20)
    chunk = b"x" * (1 << 16)
    tracemalloc.start()
    try:
        assert list(frame((chunk for _ in range(1024)), "lines", counts)) == []  # 64 MiB
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert counts.too_long[0].byte_length == 64 << 20
    assert peak < 8 << 20


def test_csv_record_may_hold_line_ends_and_blank_lines() -> None:
    records, counts = framed(b'h1,h2\r\n"a\n\nb",1\r\n\nc,"d ""e"" f"\n', "csv")
    assert records == [
        Record(0, 1, b"h1,h2"),
        Record(7, 2, b'"a\n\nb",1'),
        Record(18, 6, b'c,"d ""e"" f"'),
    ]
    assert counts.blank == 1


def test_stray_quote_costs_its_own_line_only() -> None:
    assert texts(b'a\n5" disk\nb\n"x\ny"\nc\n', "csv") == [b"a", b'5" disk', b"b", b'"x\ny"', b"c"]
    assert texts(b'a\n"open\nb\nc,"d"\n', "csv") == [b"a", b'"open\nb\nc,"d"']
    assert texts(b'a\n"open\nb\nc\n', "csv") == [b"a", b'"open', b"b", b"c"]


def test_stray_quote_is_given_up_at_the_limit() -> None:
    data = b'a,"\n' + b"bb\n" * 20
    records, counts = framed(data, "csv", limit=12)
    assert [record.data for record in records] == [b'a,"', *[b"bb"] * 20]
    assert counts.rows_in == 21


def test_elements_of_an_array_are_records() -> None:
    records, counts = framed(b'[\n {"a": "]}\\""},\n [1, {"b": 2}], "x", 7\n]\n', "json")
    assert records == [
        Record(3, 2, b'{"a": "]}\\""}'),
        Record(19, 3, b'[1, {"b": 2}]'),
        Record(34, 3, b'"x"'),
        Record(39, 3, b"7"),
    ]
    assert counts.rows_in == 4


def test_one_document_is_one_record_and_json_lines_are_records_too() -> None:
    assert texts(b'{\n "a": [1, 2]\n}\n', "json") == [b'{\n "a": [1, 2]\n}']
    assert texts(b'{"a": 1}\n{"a": 2}\n', "json") == [b'{"a": 1}', b'{"a": 2}']


def test_cut_array_delivers_the_rest_as_unterminated() -> None:
    records, _counts = framed(b'[{"a": 1}, {"a": [1, 2', "json")
    assert [(record.data, record.terminated) for record in records] == [
        (b'{"a": 1}', True),
        (b'{"a": [1, 2', False),
    ]


def test_junk_between_json_values_is_a_record_for_the_reader_to_reject() -> None:
    assert texts(b'[{"a": 1}] trailing ]\n{"a": 2}', "json") == [
        b'{"a": 1}',
        b"trailing ]",
        b'{"a": 2}',
    ]


@pytest.mark.parametrize("size", [1, 2, 5, 1000])
def test_long_element_is_counted_and_the_next_one_is_read(size: int) -> None:
    data = b'[{"a": "' + b"x" * 100 + b'"}, {"a": 1}]'
    records, counts = framed(data, "json", size=size, limit=20)
    assert [record.data for record in records] == [b'{"a": 1}']
    assert counts.too_long[0].byte_length == 109


def test_deep_nesting_is_linear_and_bounded() -> None:
    depth = 100_000
    records, _counts = framed(b"[" * depth + b"]" * depth, "json")
    assert [len(record.data) for record in records] == [2 * depth - 2]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
@pytest.mark.parametrize(
    "data",
    [
        b'[{"a": "\\"}", "b\\\\": [1, {"c": "]"}]}, [[["x"]]],\n 7, "a", "b]"'
        b', {}] tail "{\n{"z": 1}',
        b'"one" "two\\"" {"a": 1}\n"cut',
        b'[abc {"a": 1}, }], [] [[1]] {"deep": ' + b"[" * 40 + b'"]"' + b"]" * 40 + b"}\n",
        b'{"a": \\"x}\\" }\n{[}]\\\\',
    ],
)
def test_chunks_of_json_change_nothing(data: bytes, size: int) -> None:
    assert framed(data, "json", size=size)[0] == framed(data, "json")[0]


def test_values_are_found_whatever_is_nested_in_them() -> None:
    deep = b"[" * 40 + b'{"a": "]}\\\\"}' + b"]" * 40
    assert texts(b"[" + deep + b', {"b": "\\"}"}]', "json") == [deep, b'{"b": "\\"}"}']


def test_texts_and_bare_values_that_follow_each_other_are_one_record() -> None:
    assert texts(b'["a", "b]", {"c": 1}, 1, 2\n 3]', "json") == [
        b'"a", "b]"',
        b'{"c": 1}',
        b"1, 2",
        b"3",
    ]
    # one record of junk, not a million
    assert [len(text) for text in texts(b'"' * 2_000_000, "json")] == [2_000_000]
    assert [len(text) for text in texts(b"[" * 2_000_000, "json")] == [1_999_999]


def test_a_large_json_record_is_held_once() -> None:
    def chunks() -> Iterator[bytes]:
        yield b'{"a": "'
        for _ in range(32):
            yield b"x" * (1 << 20)
        yield b'"}  \n'

    counts = FrameCounts(max_record_bytes=1 << 30)
    tracemalloc.start()
    try:
        (record,) = frame(chunks(), "json", counts)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(record.data) == (32 << 20) + 9
    assert peak < 1.3 * len(record.data)


def test_a_document_is_one_record_whatever_is_in_it() -> None:
    data = b"\x80\x04line\n\nline\x00"
    records, counts = framed(data, "document", size=3)
    assert records == [Record(0, 1, data)]
    assert counts.rows_in == 1
    assert framed(b"", "document")[1].rows_in == 0
    assert framed(b" \n", "document")[1].blank == 1
    records, counts = framed(data, "document", size=2, limit=8)
    assert records == []
    assert [(long.offset, long.byte_length) for long in counts.too_long] == [(0, len(data))]


def frames(*payloads: bytes) -> bytes:
    return b"".join(len(payload).to_bytes(4, "big") + payload for payload in payloads)


@pytest.mark.parametrize("size", [1, 2, 3, 5, 1000])
def test_frames_carry_their_number_and_the_offset_of_their_length(size: int) -> None:
    records, counts = framed(frames(b"ab", b"", b"c\n\nd"), "frames", size=size)
    assert records == [Record(0, 1, b"ab"), Record(10, 3, b"c\n\nd")]  # 6 bytes, then 4
    assert (counts.delivered, counts.blank, counts.rows_in) == (2, 1, 3)


@pytest.mark.parametrize("size", [1, 3, 1000])
@pytest.mark.parametrize(
    ("cut", "rest"), [(1, b"c\n\n"), (3, b"c"), (4, b""), (5, b"\0\0\0"), (7, b"\0")]
)
def test_a_cut_last_frame_is_unterminated(size: int, cut: int, rest: bytes) -> None:
    records, counts = framed(frames(b"ab", b"c\n\nd")[:-cut], "frames", size=size)
    assert records == [Record(0, 1, b"ab"), Record(6, 2, rest, terminated=False)]
    assert counts.rows_in == 2


@pytest.mark.parametrize("size", [1, 4, 1000])
def test_a_long_frame_is_counted_and_the_next_one_is_read(size: int) -> None:
    records, counts = framed(frames(b"x" * 50, b"ok"), "frames", size=size, limit=10)
    assert records == [Record(54, 2, b"ok")]
    assert [(long.offset, long.line, long.byte_length) for long in counts.too_long] == [(0, 1, 50)]
    assert counts.rows_in == 2


def test_a_length_past_the_end_of_the_file_costs_no_memory() -> None:
    records, counts = framed(b"\xff\xff\xff\xff" + b"x" * 30, "frames", limit=10)
    assert (records, counts.rows_in) == ([], 1)
    assert framed(b"", "frames")[1].rows_in == 0
