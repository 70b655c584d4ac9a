"""A trace keeps its rows whatever its fields are called and whatever units they are in."""

from __future__ import annotations

import json
import tomllib
from decimal import Decimal

from hypothesis import given, settings
from hypothesis import strategies as st

from kvtrace.ingest.contract import RequestRow
from kvtrace.ingest.mapping.suggest import suggest
from kvtrace.ingest.mapping.writing import render_suggestion
from tests.unit.mapped import read

_NAMES = {
    "time": ["ts", "timestamp", "start_time", "createdAt", "meta.received_at", "arrival"],
    "request_id": ["request_id", "id", "requestId", "meta.call_id", "uuid"],
    "session": ["session_id", "conversation.id", "chatSession", "thread_id"],
    "prompt_tokens": ["prompt_tokens", "usage.inputTokens", "input_len", "n_prompt_tokens"],
    "cached_tokens": ["cached_tokens", "usage.cacheReadTokens", "prefix_hit_tokens"],
    "output_tokens": ["completion_tokens", "usage.outputTokens", "output_len", "generated_tokens"],
    "ttft": ["ttft", "timing.first_token_latency", "timeToFirstToken"],
    "e2e": ["latency", "timing.duration", "total_time", "e2e_latency"],
}
_POWERS = {"s": 0, "ms": -3, "us": -6, "ns": -9}
_START_NS = 1_767_225_600 * 10**9

_ROWS = st.lists(
    st.tuples(
        st.integers(0, 10**12),  # ns after the row before
        st.integers(1, 20_000),
        st.one_of(st.none(), st.integers(0, 1)),
        st.integers(1, 3_000),
        st.integers(10**6, 5 * 10**9),
        st.integers(5 * 10**9, 60 * 10**9),
        st.integers(0, 3),
    ),
    min_size=3,
    max_size=12,
).filter(lambda rows: any(row[2] is not None for row in rows))
"""A field that nowhere has a value cannot be suggested, so some cached tokens are known."""


def _put(record: dict[str, object], path: str, value: object) -> None:
    *outer, last = path.split(".")
    for key in outer:
        inner = record.setdefault(key, {})
        assert isinstance(inner, dict)
        record = inner
    record[last] = value


class _Raw(float):
    """A number that is written with exactly these digits."""

    def __new__(cls, digits: str) -> _Raw:
        made = super().__new__(cls, digits)
        made.digits = digits
        return made

    digits: str

    def __repr__(self) -> str:
        return self.digits


def _number(ns: int, unit: str) -> str:
    return f"{Decimal(ns).scaleb(-9 - _POWERS[unit]):f}"


def _written(record: dict[str, object]) -> str:
    """JSON with the digits of `_Raw` as they are."""
    parts = []
    for key, value in record.items():
        inner = (
            _written(value)
            if isinstance(value, dict)
            else value.digits
            if isinstance(value, _Raw)
            else json.dumps(value)
        )
        parts.append(f"{json.dumps(key)}: {inner}")
    return "{" + ", ".join(parts) + "}"


@settings(max_examples=60)
@given(
    rows=_ROWS,
    names=st.fixed_dictionaries({key: st.sampled_from(paths) for key, paths in _NAMES.items()}),
    time_unit=st.sampled_from([*_POWERS, "iso"]),
    unit=st.sampled_from(sorted(_POWERS)),
)
def test_a_trace_of_any_names_and_units_gives_the_same_rows(
    rows: list[tuple[int, int, int | None, int, int, int, int]],
    names: dict[str, str],
    time_unit: str,
    unit: str,
) -> None:
    lines, expected = [], []
    at_ns = _START_NS
    for number, (gap, prompt, cached, output, ttft, e2e, session) in enumerate(rows):
        at_ns += gap + 1_000_000
        held = None if cached is None else cached * prompt // 2
        record: dict[str, object] = {}
        _put(record, names["time"], _time(at_ns, time_unit))
        _put(record, names["request_id"], f"id-{number}")
        _put(record, names["session"], f"session-{session}")
        _put(record, names["prompt_tokens"], prompt)
        _put(record, names["cached_tokens"], held)
        _put(record, names["output_tokens"], output)
        _put(record, names["ttft"], _Raw(_number(ttft, unit)))
        _put(record, names["e2e"], _Raw(_number(e2e, unit)))
        lines.append(_written(record) + "\n")
        expected.append(
            (at_ns, f"id-{number}", f"session-{session}", prompt, held, output, ttft, e2e)
        )
    data = "".join(lines).encode()
    text = _completed(data, names, time_unit, unit)
    assert [_values(row) for row in read(text, data).requests] == expected


def _time(at_ns: int, unit: str) -> object:
    if unit != "iso":
        return _Raw(_number(at_ns, unit))
    seconds, rest = divmod(at_ns, 10**9)
    day, second = divmod(seconds - _START_NS // 10**9, 86_400)
    hour, minute = second // 3600, second // 60 % 60
    return f"2026-01-{day + 1:02}T{hour:02}:{minute:02}:{second % 60:02}.{rest:09}Z"


def _completed(data: bytes, names: dict[str, str], time_unit: str, unit: str) -> str:
    """The suggested mapping, with what a person would correct in it: units, and what is marked."""
    made = suggest(data, "log.jsonl")
    assert made is not None
    found = tomllib.loads(render_suggestion([made]))
    assert found["time"]["field"] == names["time"]
    assert found["time"]["unit"] in (time_unit, "auto")
    fields = found["fields"]
    if fields.get("usage") == "usage":  # the object of a known provider gives the counts
        fields |= {key: path for key, path in names.items() if path.startswith("usage.")}
    for key, path in names.items():
        if key == "time" or (key == "cached_tokens" and key not in fields):
            continue
        said = fields[key]
        assert (said["field"] if isinstance(said, dict) else said) == path
    fields["cached_tokens"] = names["cached_tokens"]
    lines = ["[time]", f'field = "{names["time"]}"', f'unit = "{time_unit}"', "[fields]"]
    for key in names.keys() - {"time", "ttft", "e2e"}:
        lines.append(f'{key} = "{fields[key]}"')
    lines += [f'{key} = {{ field = "{names[key]}", unit = "{unit}" }}' for key in ("ttft", "e2e")]
    return "\n".join([*lines, "[semantics]", "prompt_includes_cached = true"])


def _values(row: RequestRow) -> tuple[object, ...]:
    return (
        row.arrived_at_ns,
        row.request_id,
        row.session_id,
        row.prompt_tokens,
        row.cached_tokens,
        row.output_tokens,
        row.ttft_ns,
        row.e2e_ns,
    )
