"""What fields say of one another: cached tokens are within the prompt, an end is after its start.

A name alone may lie; a relation that holds in every record is taken for proof.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Final

from kvtrace.ingest.clocks import parse_iso
from kvtrace.ingest.mapping.clock import as_number
from kvtrace.ingest.mapping.guesses import LIKELY, Guess
from kvtrace.ingest.mapping.judges import MANY
from kvtrace.ingest.mapping.names import spelled
from kvtrace.ingest.mapping.shapes import Shape
from kvtrace.ingest.mapping.spec import POWERS
from kvtrace.ingest.mapping.values import Keys, opened
from kvtrace.ingest.values.instants import epoch_power, parse_web_log_time

Found = dict[str, list[Guess]]
_MOST: Final = 0.9
_NEAR: Final = Decimal("0.02")
"""How far a duration may be from the difference of two instants, as a share of it."""
_ONLY: Final = 0.55
"""Score of the only dates of a log, whatever they are called."""


class Columns:
    """Numbers of fields, record by record, without keeping a record."""

    def __init__(self, examples: Sequence[Mapping[str, object]]) -> None:
        self._examples = examples
        self._numbers: dict[Keys, list[Decimal | None]] = {}
        self._instants: dict[Keys, list[Decimal | None]] = {}

    def values(self, keys: Keys) -> list[object]:
        """The values at these keys, null where a record has none."""
        found: list[object] = []
        for example in self._examples:
            value: object = example
            for key in keys:
                value = opened(value).get(key)
            found.append(value)
        return found

    def numbers(self, keys: Keys) -> list[Decimal | None]:
        """The numbers as they stand."""
        if keys not in self._numbers:
            self._numbers[keys] = [_number(value) for value in self.values(keys)]
        return self._numbers[keys]

    def instants(self, shape: Shape) -> list[Decimal | None]:
        """Seconds of dates and of epoch numbers, each by its magnitude."""
        if shape.keys not in self._instants:
            if shape.kind == "date":
                held = [_date_seconds(value) for value in self.values(shape.keys)]
            else:
                held = [_epoch_seconds(number) for number in self.numbers(shape.keys)]
            self._instants[shape.keys] = held
        return self._instants[shape.keys]


def _number(value: object) -> Decimal | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    return as_number(value.strip() if isinstance(value, str) else repr(value))


def _date_seconds(value: object) -> Decimal | None:
    text = value.strip() if isinstance(value, str) else ""
    found = parse_iso(text) or parse_web_log_time(text)
    return None if found is None else Decimal(found.ns).scaleb(-9)


def _epoch_seconds(number: Decimal | None) -> Decimal | None:
    power = None if number is None else epoch_power(number)
    return None if number is None or power is None else number.scaleb(power)


def _pairs(
    one: Sequence[Decimal | None], other: Sequence[Decimal | None]
) -> list[tuple[Decimal, Decimal]]:
    return [(a, b) for a, b in zip(one, other, strict=True) if a is not None and b is not None]


def weighed(found: Found, columns: Columns, shapes: Sequence[Shape]) -> Found:
    """The guesses with what their values prove or put in doubt, best first."""
    made = {key: list(guesses) for key, guesses in found.items()}
    _weigh_counts(made, columns)
    _weigh_totals(made, columns)
    _add_only_dates(made, shapes)
    _weigh_instants(made, columns)
    for guesses in made.values():
        guesses.sort(key=lambda one: (-one.score, len(one.shape.keys), one.shape.keys))
    return made


def _change(found: Found, key: str, old: Guess, new: Guess) -> Guess:
    found[key] = [new if one is old else one for one in found[key]]
    return new


def _best(found: Found, key: str) -> Guess | None:
    return max(found.get(key, ()), key=lambda one: one.score, default=None)


def _weigh_counts(found: Found, columns: Columns) -> None:
    """Cached tokens are never more than the prompt that holds them."""
    prompt = _best(found, "prompt_tokens")
    if prompt is None:
        return
    for cached in list(found.get("cached_tokens", ())):
        if cached.shape.keys == prompt.shape.keys:
            continue
        pairs = _pairs(columns.numbers(cached.shape.keys), columns.numbers(prompt.shape.keys))
        above = sum(held > length for held, length in pairs)
        if len(pairs) < MANY or not any(held for held, _length in pairs):
            continue
        if not above:
            proof = f"never above `{spelled(prompt.shape.keys)}`"
            _change(found, "cached_tokens", cached, cached.proved(proof))
            proof = f"never below `{spelled(cached.shape.keys)}`"
            prompt = _change(found, "prompt_tokens", prompt, prompt.proved(proof))
        elif cached.score < LIKELY:
            doubt = f"above `{spelled(prompt.shape.keys)}` in {above} of {len(pairs)} records"
            _change(found, "cached_tokens", cached, cached.doubted(doubt))


def _weigh_totals(found: Found, columns: Columns) -> None:
    """A total that is the sum of prompt and output proves all three."""
    parts = [_best(found, key) for key in ("prompt_tokens", "output_tokens", "total_tokens")]
    prompt, output, total = parts
    if prompt is None or output is None or total is None:
        return
    held = [columns.numbers(part.shape.keys) for part in (prompt, output, total)]
    rows = [(p, o, t) for p, o, t in zip(*held, strict=True) if None not in (p, o, t)]
    if len(rows) < MANY or any(p + o != t for p, o, t in rows):
        return
    proof = f"prompt and output make `{spelled(total.shape.keys)}`"
    for key, part in (("prompt_tokens", prompt), ("output_tokens", output),
                      ("total_tokens", total)):  # fmt: skip
        _change(found, key, part, part.proved(proof))


def _add_only_dates(found: Found, shapes: Sequence[Shape]) -> None:
    """Dates that no other dates stand beside are the time of a record, whatever their name."""
    if found.get("time") or found.get("finished_at") or found.get("first_token_at"):
        return
    dates = [shape for shape in shapes if shape.coverage >= _MOST and (
        shape.kind == "date" or (shape.epoch is not None and shape.is_rising))]  # fmt: skip
    if len(dates) == 1:
        found["time"] = [Guess(dates[0], _ONLY, "the only dates of the records")]


def _weigh_instants(found: Found, columns: Columns) -> None:
    """Ends and first tokens come after the start."""
    for start in list(found.get("time", ())):
        for key in ("finished_at", "first_token_at"):
            for later in list(found.get(key, ())):
                start = _weigh_pair(found, columns, start, key, later)
    starts = list(found.get("time", ()))
    for one in starts:
        for other in starts:
            if one is other or one.shape.keys == other.shape.keys:
                continue
            if one in found["time"] and _order(columns, other.shape, one.shape) > 0:
                doubt = f"never before `{spelled(other.shape.keys)}`"
                _change(found, "time", one, one.doubted(doubt))


def _weigh_pair(found: Found, columns: Columns, start: Guess, key: str, later: Guess) -> Guess:
    if start.shape.keys == later.shape.keys:
        return start
    order = _order(columns, start.shape, later.shape)
    names = spelled(start.shape.keys), spelled(later.shape.keys)
    if order > 0:
        _change(found, key, later, later.proved(f"never before `{names[0]}`"))
        return _change(found, "time", start, start.proved(f"never after `{names[1]}`"))
    if order < 0:
        if key == "finished_at":
            return _change(found, "time", start, start.doubted(f"never before `{names[1]}`"))
        _change(found, key, later, later.doubted(f"before `{names[0]}`"))
    return start


def _order(columns: Columns, one: Shape, other: Shape) -> int:
    """1: the second is never before the first and sometimes after; −1: the other way; else 0."""
    pairs = _pairs(columns.instants(one), columns.instants(other))
    if len(pairs) < MANY:
        return 0
    if all(a <= b for a, b in pairs):
        return int(any(a < b for a, b in pairs))
    return -int(all(a >= b for a, b in pairs))


def told_unit(
    columns: Columns, duration: Shape, start: Shape, end: Shape
) -> tuple[str | None, bool]:
    """(the unit in which a duration is end less start, whether the records can tell).

    Where several units fit within the resolution of the instants, nothing is told.
    """
    begun, ended = columns.instants(start), columns.instants(end)
    spans = [None if a is None or b is None else b - a for a, b in zip(begun, ended, strict=True)]
    pairs = _pairs(columns.numbers(duration.keys), spans)
    if len(pairs) < MANY or not any(span > 0 for _held, span in pairs):
        return None, False
    step = max(_resolution(begun), _resolution(ended))
    fits = [unit for unit, power in POWERS.items() if _share_near(pairs, power, step) >= _MOST]
    return (fits[0], True) if len(fits) == 1 else (None, not fits)


def _share_near(pairs: Sequence[tuple[Decimal, Decimal]], power: int, step: Decimal) -> float:
    """Share of the records whose duration, in this unit, is the span of its instants."""
    near = sum(
        abs(held.scaleb(power) - span) <= max(abs(span) * _NEAR, step) for held, span in pairs
    )
    return near / len(pairs)


def _resolution(instants: Sequence[Decimal | None]) -> Decimal:
    """Seconds of the last digit that any of them has."""
    digits = [int(one.normalize().as_tuple().exponent) for one in instants if one is not None]
    return Decimal(1).scaleb(min(0, *digits)) if digits else Decimal(1)


def never_above(columns: Columns, one: Shape, other: Shape, powers: tuple[int, int]) -> bool | None:
    """Whether a duration is never longer than another one; None if too few records have both."""
    pairs = _pairs(columns.numbers(one.keys), columns.numbers(other.keys))
    if len(pairs) < MANY:
        return None
    below = sum(a.scaleb(powers[0]) <= b.scaleb(powers[1]) for a, b in pairs)
    return below >= _MOST * len(pairs)
