"""Fields of log messages: numbers exactly or not at all, pairs and spans whole or not at all."""

from __future__ import annotations

import pytest

from kvtrace.ingest.contract import LineTime
from kvtrace.ingest.textlog.fields import (
    BadField,
    count_of,
    earlier,
    elapsed_ns,
    json_fields,
    key_values,
    llm_of,
    printed_duration_ns,
    split_spans,
)


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("0s", 0),
        ("54.81µs", 54_810),
        ("54.81μs", 54_810),
        ("7ns", 7),
        ("1m12s", 72 * 10**9),
        ("2m3.5s", 123_500_000_000),
        ("1h0m0.25s", 3_600_250_000_000),
    ],
)
def test_durations_of_go_and_rust(text: str, ns: int) -> None:
    assert printed_duration_ns("x", text) == ns


@pytest.mark.parametrize("text", ["", "1", "-1s", "1.s", "1e3s", "1 s", "٣s", "9" * 18 + "h"])
def test_other_text_is_no_duration(text: str) -> None:
    with pytest.raises(BadField, match=r"`x` is"):
        printed_duration_ns("x", text)


def test_counts() -> None:
    assert [count_of("n", text) for text in ("0", "17", None, "", "N/A")] == [
        0,
        17,
        None,
        None,
        None,
    ]
    for text in ("-1", "1.0", "٣", "9007199254740992", "1_0"):  # 2^53 is no count
        with pytest.raises(BadField, match="`n` is not a count"):
            count_of("n", text)


def test_elapsed_is_exact_and_negative_is_unknown() -> None:
    flags: list[str] = []
    assert elapsed_ns("t", "41.2", flags, power=-3) == 41_200_000
    assert elapsed_ns("t", None, flags) is None
    assert elapsed_ns("t", "-0.5", flags) is None
    assert flags == ["negative_t"]
    for text in ("soon", "1e99", "Infinity"):
        with pytest.raises(BadField):
            elapsed_ns("t", text, flags)


def test_pairs_are_whole_or_none() -> None:
    assert key_values(r' a="x \"y\" z" b=1 c=') == {"a": r"x \"y\" z", "b": "1", "c": ""}
    assert key_values("") == {}
    for text in ('a="cut', "a=1 junk", "a=1 a=2", "=1", 'a=1"2'):
        assert key_values(text) is None


def test_json_scalars_keep_their_digits() -> None:
    assert json_fields('{"a": 41.20, "b": "x", "c": true, "d": null, "e": {"f": 1}}') == {
        "a": "41.20",
        "b": "x",
    }
    assert json_fields("[1]") == json_fields("{") == json_fields(None) == {}


def test_spans_end_at_their_own_brace() -> None:
    text = 'http{uri="/}: x"}:run{p=P { a: [1], b: {} } t="1s"}: target: message {x}: y'
    assert split_spans(text) == (
        ['uri="/}: x"', 'p=P { a: [1], b: {} } t="1s"'],
        "target: message {x}: y",
    )
    for text in ("http{uri: x", 'http{"}: x', "http{}x: y", "no span: {}"):
        assert split_spans(text) == ([], text)


def test_stamps_move_back_unless_their_day_would_change() -> None:
    time = LineTime(100, 200, 301, 50, 1)
    assert earlier(time, 40) == LineTime(60, 160, 301, 10, 1)
    assert earlier(time, 60) == LineTime(40, 140, None, 0, 1)
    assert earlier(LineTime(-(2**62), 0, None, 0, 0), 2**62 + 2**62) == LineTime(
        None, None, None, 0, 0
    )  # -2^63 is no time


def test_a_path_is_no_name_of_a_model() -> None:
    names = ["org/m", "m", "/home/ann/m/", "a/b/c", r"C:\ann\m.gguf", "", None]
    assert [llm_of(name) for name in names] == ["org/m", "m", "m", "c", "m.gguf", None, None]
