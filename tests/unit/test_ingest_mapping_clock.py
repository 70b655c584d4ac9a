"""Times of mapped files: units stated, told by magnitude, or refused because they contradict."""

from __future__ import annotations

import pytest

from kvtrace.errors import UsageError
from kvtrace.ingest.mapping import recognise_mapped
from tests.unit.mapped import json_lines, mapping, read

START_S = 1_767_225_600  # 2026-01-01T00:00:00Z
FIELDS = '[fields]\nprompt_tokens = "p"\n'


def _records(*times: object) -> bytes:
    return json_lines([{"t": time, "p": 1} for time in times])


def _text(*lines: str, fields: str = FIELDS) -> str:
    return "\n".join(["[time]", 'field = "t"', *lines, fields])


@pytest.mark.parametrize(
    ("unit", "value"),
    [
        ("s", START_S),
        ("ms", START_S * 1_000),
        ("us", START_S * 10**6),
        ("ns", START_S * 10**9),
        ("iso", "2026-01-01T01:00:00+01:00"),
    ],
)
@pytest.mark.parametrize("is_stated", [True, False])
def test_units_stated_and_by_magnitude(unit: str, value: object, is_stated: bool) -> None:
    text = _text(f'unit = "{unit}"') if is_stated else _text()
    reading = read(text, _records(value, value))
    assert reading.requests[0].arrived_at_ns == START_S * 10**9
    assert reading.context.clock == "utc"
    assert ("clock_assumed" in reading.note_codes) is (not is_stated and unit != "iso")


@pytest.mark.parametrize(
    ("unit", "value", "right"),
    [
        ("s", START_S * 1_000, "ms"),
        ("ms", START_S, "s"),
        ("us", START_S * 10**9, "ns"),
        ("iso", START_S, "auto"),
        ("ms", "2026-01-01T00:00:00Z", "iso"),
    ],
)
def test_a_unit_that_contradicts_the_values_is_an_error(
    unit: str, value: object, right: str
) -> None:
    with pytest.raises(UsageError) as caught:
        read(_text(f'unit = "{unit}"'), _records(value, value))
    assert caught.value.code == "KVT-U033"
    assert f'unit = "{right}"' in (caught.value.hint or "")
    assert str(value) not in caught.value.render()


def test_a_clock_that_is_stated_is_believed() -> None:
    reading = read(_text('unit = "ms"', 'clock = "relative"'), _records(START_S, START_S + 5))
    assert reading.context.clock == "relative"
    assert reading.requests[1].arrived_at_ns == (START_S + 5) * 10**6


def test_times_from_a_start_need_a_unit() -> None:
    with pytest.raises(UsageError) as caught:
        read(_text(), _records(0.5, 12.25))
    assert "count from some start" in (caught.value.cause or "")
    reading = read(_text('unit = "s"'), _records(0.5, 12.25))
    assert [row.arrived_at_ns for row in reading.requests] == [500_000_000, 12_250_000_000]
    assert reading.context.clock == "relative"


def test_the_name_of_a_field_tells_the_unit_of_times_from_a_start() -> None:
    text = '[time]\nfield = "t_ms"\n' + FIELDS
    reading = read(text, json_lines([{"t_ms": 250, "p": 1}, {"t_ms": 500, "p": 1}]))
    assert reading.requests[0].arrived_at_ns == 250_000_000
    assert "clock_assumed" in reading.note_codes


def test_rows_of_another_unit_are_read_by_their_magnitude_and_warned_about() -> None:
    reading = read(_text(), _records(START_S, START_S + 1, (START_S + 2) * 1_000))
    assert [row.arrived_at_ns for row in reading.requests] == [
        (START_S + second) * 10**9 for second in range(3)
    ]
    assert "mixed_epoch_units" in reading.note_codes


def test_a_number_that_is_no_date_among_dates_is_unknown() -> None:
    rows = read(_text('unit = "s"'), _records(START_S, 0, START_S)).requests
    assert rows[1].arrived_at_ns is None
    assert rows[1].flags == ("time_not_an_epoch",)


def test_dates_without_a_zone_take_that_of_the_mapping_before_the_flag() -> None:
    data = _records("2026-01-01 12:00:00", "2026-01-01 12:00:01")
    noon = (START_S + 12 * 3600) * 10**9
    plain = read(_text(), data)
    assert (plain.context.clock, plain.requests[0].arrived_at_ns) == ("naive", noon)
    flagged = read(_text(), data, tz="Europe/Berlin")
    assert flagged.requests[0].arrived_at_ns == noon - 3600 * 10**9
    own = read(_text('zone = "Asia/Tokyo"'), data, tz="Europe/Berlin")
    assert own.requests[0].arrived_at_ns == noon - 9 * 3600 * 10**9


def test_the_time_of_the_end_minus_the_duration_is_the_start() -> None:
    fields = FIELDS + 'e2e = { field = "d", unit = "ms" }\n'
    data = json_lines([{"t": START_S, "p": 1, "d": 1_500}, {"t": START_S, "p": 1}])
    reading = read(_text('meaning = "end"', fields=fields), data)
    first, second = reading.requests
    assert first.arrived_at_ns == START_S * 10**9 - 1_500_000_000
    assert (second.arrived_at_ns, second.flags) == (None, ("start_unknown",))
    assert "mapped_start_unknown" in reading.note_codes


def test_instants_of_the_first_token_and_the_end_give_durations() -> None:
    fields = FIELDS + 'first_token_at = "f"\nfinished_at = { field = "e", unit = "ms" }\n'
    record = {"t": START_S, "f": START_S + 0.25, "e": START_S * 1_000 + 2_000, "p": 1}
    backwards = record | {"e": START_S * 1_000 - 5}
    first, second = read(_text(fields=fields), json_lines([record, backwards])).requests
    assert (first.ttft_ns, first.e2e_ns) == (250_000_000, 2_000_000_000)
    assert (second.e2e_ns, second.flags) == (None, ("time_order",))


def test_durations_with_their_unit_in_the_text() -> None:
    text = '[fields]\ne2e = { field = "d", unit = "text" }\nprompt_tokens = "p"'
    values = ["350ms", "1.5s", "1m3.5s", "12µs", "3", "5 parsecs"]
    reading = read(text, json_lines([{"d": value, "p": 1} for value in values]))
    assert [row.e2e_ns for row in reading.requests] == [
        350_000_000,
        1_500_000_000,
        63_500_000_000,
        12_000,
    ]
    assert [line for line, _ in reading.rejected] == [5, 6]


def test_units_that_make_the_first_token_come_last_are_doubted() -> None:
    text = '[fields]\nttft = { field = "f", unit = "s" }\ne2e = { field = "e", unit = "ms" }'
    reading = read(text, json_lines([{"f": 0.2, "e": 3}] * 4))
    assert "mapped_units_doubted" in reading.note_codes


def test_a_mapping_without_a_time_keeps_the_order() -> None:
    reading = read(FIELDS, json_lines([{"p": 1}, {"p": 2}]))
    assert reading.context.clock == "order"
    assert [row.arrived_at_ns for row in reading.requests] == [None, None]


def test_a_column_without_any_value_is_no_error() -> None:
    data = json_lines([{"p": 1, "t": None}, {"p": 2, "t": ""}])
    found = recognise_mapped(mapping(_text('unit = "s"')), data, "log.jsonl")
    assert found.format is not None
    assert "mapped_field_absent" in read(_text('unit = "s"'), data).note_codes


MS = START_S * 1_000
NS_PER_MS = 10**6


@pytest.mark.parametrize("factor", [10**6, 10**3, 10**-3])
@pytest.mark.parametrize("place", [0, 2])
def test_one_time_in_another_unit_near_the_others_is_read_in_it(factor: float, place: int) -> None:
    # ns, us and s among ms, as the first row too
    times: list[object] = [MS, MS + 1_000, MS + 2_000]
    times[place] = int((MS + 5_000) * factor)
    reading = read(_text('unit = "ms"'), _records(*times))
    assert reading.requests[place].arrived_at_ns == (MS + 5_000) * NS_PER_MS
    assert [row.flags for row in reading.requests].count(("time_in_another_unit",)) == 1


@pytest.mark.parametrize(
    "odd",
    [
        0,
        -1,
        (MS + 2 * 86_400_000) * 1_000,  # a date in microseconds, but two days on
        12_345,  # no date in any unit
        10**15,  # 2001 in microseconds, and nothing else
    ],
)
def test_a_time_that_is_no_date_near_the_others_is_unknown(odd: int) -> None:
    reading = read(_text('unit = "ms"'), _records(MS, odd, MS + 1))
    assert [row.arrived_at_ns for row in reading.requests] == [
        MS * NS_PER_MS, None, (MS + 1) * NS_PER_MS,
    ]  # fmt: skip
    assert reading.requests[1].flags == ("time_not_an_epoch",)


def test_a_time_in_another_unit_does_not_vouch_for_the_next() -> None:
    # In ms up to 0.9 days; in µs 1.8 days (0.9 from the last), then 2.7 (0.9 from the odd one).
    day = 86_400_000
    stated = [MS, MS + 1, MS + 2, MS + day * 9 // 10]
    odd = [(MS + day * tenths // 10) * 1_000 for tenths in (18, 27)]
    reading = read(_text('unit = "ms"'), _records(*stated, *odd))
    assert reading.requests[4].arrived_at_ns == (MS + day * 18 // 10) * NS_PER_MS
    assert reading.requests[5].arrived_at_ns is None


def test_an_end_in_another_unit_gives_the_right_duration() -> None:
    text = _text('unit = "ms"', fields=FIELDS + 'finished_at = { field = "end", unit = "ms" }\n')
    records = [{"t": MS + at, "p": 1, "end": MS + at + 250} for at in range(3)]
    records[1]["end"] *= 1_000
    reading = read(text, json_lines(records))
    assert [row.e2e_ns for row in reading.requests] == [250 * NS_PER_MS] * 3
