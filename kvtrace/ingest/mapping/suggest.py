"""A first mapping of a log, from what its fields are called and what their values look like.

No value of the log gets into it: only names that look like names of fields, kinds and counts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Final

import numpy as np

from kvtrace.ingest.blocks.size import judge_blocks
from kvtrace.ingest.contract import ReadContext, Tally
from kvtrace.ingest.mapping.guesses import (
    CHOSEN_FROM,
    PROVED_SCORE,
    Guess,
    guesses_of,
    status_guess,
    usage_guess,
)
from kvtrace.ingest.mapping.head import FileHead, look_at
from kvtrace.ingest.mapping.meanings import Counted, told_inclusive
from kvtrace.ingest.mapping.names import flattened, is_name, spelled
from kvtrace.ingest.mapping.parse import unit_in_name
from kvtrace.ingest.mapping.relations import Columns, never_above, told_unit, weighed
from kvtrace.ingest.mapping.shapes import Shape, known_values, shape_of
from kvtrace.ingest.mapping.spec import POWERS
from kvtrace.ingest.mapping.values import Keys, opened

_COUNTS: Final = ("prompt_tokens", "cached_tokens", "cache_write_tokens", "output_tokens",
                  "reasoning_tokens", "total_tokens")  # fmt: skip
_OF_USAGE: Final = ("prompt_tokens", "cached_tokens", "cache_write_tokens", "output_tokens")
_MIN_OBJECTS: Final = 2
_CUT_LIST: Final = re.compile(rb'\A\s*\{[^\[{]{0,4096}?"([^"\\]{1,64})"\s*:\s*\[\s*\{')
"""The first key of a document whose value is a list of objects, with plain values before it."""


@dataclass(frozen=True, slots=True)
class Unit:
    """The unit of a duration and how it is known."""

    unit: str
    why: str
    is_sure: bool


@dataclass(frozen=True, slots=True)
class Suggested:
    """The fields of one file that were found, and what else could be said of it."""

    name: str
    head: FileHead
    records: Keys | None
    """The list of requests in a document."""
    chosen: dict[str, Guess]
    others: dict[str, list[Guess]]
    """Further fields that suit a key of the mapping, best first."""
    is_end: bool = False
    """The only time is that of the end."""
    lone_end: Guess | None = None
    """The only time is that of the end, and no duration leads from it to the start."""
    units: dict[str, Unit] = field(default_factory=dict)
    """Duration → its unit."""
    block_tokens: tuple[int, bool] | None = None
    inclusive: tuple[bool, str] | None = None
    shapes: tuple[Shape, ...] = ()
    """Of every field that may be shown."""
    checked: str = ""
    """What reading the start of the file by this mapping gave, for people."""


def suggest(data: bytes, name: str) -> Suggested | None:
    """What the fields of a file may be, by its start; None if it is neither JSON nor CSV."""
    head = look_at(data, name)
    if head is None or not head.examples:
        return None
    records, examples = _requests(head, data)
    values = _shown(examples, head.header)
    shapes = [
        shape
        for keys, held in values.items()
        if (shape := shape_of(keys, held, len(examples))) is not None
    ]
    columns = Columns(examples)
    found = guesses_of(shapes)
    _add(found, "status", (status_guess(shape, values[shape.keys]) for shape in shapes))
    _add(found, "usage", (usage_guess(shape, values[shape.keys]) for shape in shapes))
    found = _with_told_units(weighed(found, columns, shapes), columns)
    chosen, others = _choose(found)
    made = _with_time(Suggested(name, head, records, chosen, others))
    return judged(replace(made, shapes=tuple(shapes)), columns)


def judged(made: Suggested, columns: Columns) -> Suggested:
    """The suggestion with units, block size and semantics of the fields that it chose."""
    units = _units(made, columns)
    return replace(
        made,
        chosen=_with_lengths_weighed(made.chosen, units, columns),
        units=units,
        block_tokens=_block_tokens(made, columns),
        inclusive=_inclusive(made, columns),
    )


def _requests(head: FileHead, data: bytes) -> tuple[Keys | None, Sequence[Mapping[str, object]]]:
    """(where a document holds its requests, the requests): the longest list of objects in it."""
    cut = _CUT_LIST.match(data)
    if head.framing == "json" and cut is not None and head.examples:
        key = cut[1].decode("utf-8", "replace")
        if is_name(key) and key not in head.examples[0]:
            return (key,), head.examples
    if len(head.examples) > 1 or head.header:
        return None, head.examples
    lists = [
        (len(held[0]), keys)
        for keys, held in flattened(head.examples).items()
        if isinstance(held[0], list)
        and len(held[0]) >= _MIN_OBJECTS
        and all(isinstance(item, dict) and "role" not in item for item in held[0])
        and "0" not in keys
    ]
    if not lists:
        return None, head.examples
    keys = max(lists)[1]
    value: object = head.examples[0]
    for key in keys:
        value = opened(value)[key]
    return keys, [item for item in opened(value).values() if isinstance(item, dict)][:50]


def _shown(
    examples: Sequence[Mapping[str, object]], header: Sequence[str]
) -> dict[Keys, list[object]]:
    """Known values of the fields that recur: a key of one record alone may be somebody's data."""
    least = min(2, len(examples))
    return {
        keys: known_values(held)
        for keys, held in flattened(examples).items()
        if "0" not in keys and (len(held) >= least or keys[0] in header)
    }


def _add(found: dict[str, list[Guess]], key: str, guesses: Iterable[Guess | None]) -> None:
    known = sorted(
        (one for one in guesses if one is not None),
        key=lambda one: (-one.score, len(one.shape.keys), one.shape.keys),
    )
    if known:
        found[key] = known


def _choose(
    found: Mapping[str, list[Guess]],
) -> tuple[dict[str, Guess], dict[str, list[Guess]]]:
    """Each field at most once, the surest pairs first."""
    pairs = sorted(
        ((guess, key) for key, guesses in found.items() for guess in guesses),
        key=lambda pair: (-pair[0].score, pair[1], pair[0].shape.keys),
    )
    chosen: dict[str, Guess] = {}
    used: set[Keys] = set()
    for guess, key in pairs:
        if key in chosen or guess.shape.keys in used or guess.score < CHOSEN_FROM:
            continue
        chosen[key] = guess
        used.add(guess.shape.keys)
    others = {
        key: [guess for guess in guesses if guess is not chosen.get(key)]
        for key, guesses in found.items()
    }
    _settle(chosen, others)
    return chosen, others


def _settle(chosen: dict[str, Guess], others: dict[str, list[Guess]]) -> None:
    """Take out what says the same twice; it stays as an alternative."""

    def step_back(key: str) -> None:
        guess = chosen.pop(key, None)
        if guess is not None:
            others.setdefault(key, []).insert(0, guess)

    usage = chosen.get("usage")
    if usage is not None:
        for key in _COUNTS if _says_all(usage, chosen) else ("usage",):
            step_back(key)
    if "e2e" in chosen and "finished_at" in chosen and "time" in chosen:
        step_back("e2e" if chosen["e2e"].doubts else "finished_at")
    if "ttft" in chosen and "first_token_at" in chosen:
        step_back("ttft" if chosen["ttft"].doubts else "first_token_at")
    ways = [key for key in ("block_hashes", "token_ids", "prompt") if key in chosen]
    for key in ways[1:]:
        step_back(key)
    if "total_tokens" in chosen and "prompt_tokens" not in chosen:
        step_back("total_tokens")


def _says_all(usage: Guess, chosen: Mapping[str, Guess]) -> bool:
    """Whether the usage object gives every count that single fields give."""
    return all(key in usage.gives for key in _OF_USAGE if key in chosen)


def _with_time(made: Suggested) -> Suggested:
    """The time of the start; that of the end with the duration where there is no other."""
    chosen = dict(made.chosen)
    if "time" in chosen:
        return made
    chosen.pop("first_token_at", None)
    end = chosen.pop("finished_at", None) or next(iter(made.others.get("finished_at", ())), None)
    if end is None:
        return replace(made, chosen=chosen)
    if "e2e" not in chosen:
        return replace(made, chosen=chosen, lone_end=end)
    return replace(made, chosen={**chosen, "time": end}, is_end=True)


def _with_told_units(found: dict[str, list[Guess]], columns: Columns) -> dict[str, list[Guess]]:
    """Durations that are the difference of two instants are proved, others doubted."""
    starts = found.get("time", [])[:1]
    for key, instant in (("e2e", "finished_at"), ("ttft", "first_token_at")):
        ends = [one for one in found.get(instant, []) if starts and one.shape != starts[0].shape]
        for at, guess in enumerate(found.get(key, [])):
            for end in ends[:1]:
                found[key][at] = _held_against(guess, starts[0], end, columns)
    return found


def _held_against(guess: Guess, start: Guess, end: Guess, columns: Columns) -> Guess:
    unit, is_telling = told_unit(columns, guess.shape, start.shape, end.shape)
    names = spelled(end.shape.keys), spelled(start.shape.keys)
    if unit is not None:
        proved = guess.proved(f"is `{names[0]}` less `{names[1]}`")
        return replace(proved, score=max(proved.score, PROVED_SCORE))
    if is_telling:
        return guess.doubted(f"is not `{names[0]}` less `{names[1]}` in any unit")
    return guess


def spelled_toml(keys: Keys) -> str:
    """A field as the mapping writes it: a dotted path, or a list where a key has a point."""
    if any("." in key for key in keys):
        return json.dumps(list(keys), ensure_ascii=False)
    return json.dumps(".".join(keys), ensure_ascii=False)


def _units(made: Suggested, columns: Columns) -> dict[str, Unit]:
    """Units by the instants of the record, by name, else by what is usual for such a duration."""
    units: dict[str, Unit] = {}
    for key in ("e2e", "ttft", "queue", "prefill", "tpot"):
        for guess in (*filter(None, (made.chosen.get(key),)), *made.others.get(key, ())):
            found = _told(made, key, guess, columns) or _named(guess)
            found = found or _usual(made, key, guess, units)
            units.setdefault(key if guess is made.chosen.get(key) else _other(key, guess), found)
    return units


def _other(key: str, guess: Guess) -> str:
    return f"{key}:{spelled(guess.shape.keys)}"


def unit_of(made: Suggested, key: str, guess: Guess) -> Unit | None:
    """The unit of a duration, chosen or not."""
    return made.units.get(key if guess is made.chosen.get(key) else _other(key, guess))


def _named(guess: Guess) -> Unit | None:
    named = unit_in_name(guess.shape.keys[-1])
    return None if named is None else Unit(named, "by the name", True)


def _told(made: Suggested, key: str, guess: Guess, columns: Columns) -> Unit | None:
    """The unit in which a duration is the difference of two instants of its record."""
    instant = {"e2e": "finished_at", "ttft": "first_token_at"}.get(key)
    start = None if made.is_end else made.chosen.get("time")
    ends = [one for one in (made.chosen.get(instant or ""),) if one is not None]
    ends += made.others.get(instant or "", [])
    if start is None or not ends:
        return None
    unit, _is_telling = told_unit(columns, guess.shape, start.shape, ends[0].shape)
    return None if unit is None else Unit(unit, f"by `{spelled(ends[0].shape.keys)}`", True)


def _usual(made: Suggested, key: str, guess: Guess, units: Mapping[str, Unit]) -> Unit:
    outputs = made.chosen.get("output_tokens") or next(
        iter(made.others.get("output_tokens", ())), None
    )
    median = guess.shape.middle or Decimal(0)
    if key == "e2e" and outputs is not None and outputs.shape.middle:
        median_gap = median / max(outputs.shape.middle, Decimal(1))
        unit = _unit_by(median_gap, _GAP_S)
    elif key != "e2e" and "e2e" in units and not units["e2e"].is_sure:
        unit = units["e2e"].unit
    else:
        unit = _unit_by(median, _TYPICAL_S[key])
    return Unit(unit, "the usual size of such a duration", False)


def _with_lengths_weighed(
    chosen: Mapping[str, Guess], units: Mapping[str, Unit], columns: Columns
) -> dict[str, Guess]:
    """A first token that comes before the end proves both durations and their units."""
    made = dict(chosen)
    whole, first = made.get("e2e"), made.get("ttft")
    if whole is None or first is None:
        return made
    powers = POWERS[units["ttft"].unit], POWERS[units["e2e"].unit]
    fits = never_above(columns, first.shape, whole.shape, powers)
    names = spelled(first.shape.keys), spelled(whole.shape.keys)
    if fits:
        made["ttft"] = first.proved(f"never above `{names[1]}`")
        made["e2e"] = whole.proved(f"never below `{names[0]}`")
    elif fits is False:
        made["ttft"] = first.doubted(f"above `{names[1]}` in these units")
    return made


_GAP_S: Final = Decimal("0.03")
"""Seconds an output token of a usual request takes, all in all."""
_TYPICAL_S: Final = {"e2e": Decimal(5), "ttft": Decimal("0.3"), "queue": Decimal("0.1"),
                     "prefill": Decimal("0.2"), "tpot": Decimal("0.03")}  # fmt: skip
"""Usual seconds of such a duration."""


def _unit_by(median: Decimal, typical_s: Decimal) -> str:
    """The unit in which the median is nearest to what is usual, in orders of magnitude."""
    if median <= 0:
        return "s"
    powers = {"s": 0, "ms": -3, "us": -6, "ns": -9}
    return min(powers, key=lambda unit: abs(float((median.scaleb(powers[unit]) / typical_s).ln())))


def _as_count(value: object) -> int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    text = value.strip() if isinstance(value, str) else ""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 16 else None


def _block_tokens(made: Suggested, columns: Columns) -> tuple[int, bool] | None:
    """(tokens a block, whether it is sure), from ids and lengths of the first prompts."""
    blocks = made.chosen.get("block_hashes")
    prompt = made.chosen.get("prompt_tokens")
    if blocks is None or prompt is None:
        return None
    pairs = [
        (length, len(opened(held)))
        for value, held in zip(
            columns.values(prompt.shape.keys),
            columns.values(blocks.shape.keys),
            strict=True,
        )
        if (length := _as_count(value)) is not None and opened(held)
    ]
    if not pairs:
        return None
    context = ReadContext("", Tally(), 0)
    lengths, counts = np.array(pairs, dtype=np.int64).T
    judge_blocks(context, lengths, counts)
    size = context.found_block_size_tokens
    return None if size is None else (size, len(pairs) >= 20)


def _inclusive(made: Suggested, columns: Columns) -> tuple[bool, str] | None:
    if "prompt_tokens" not in made.chosen:
        return None
    known: dict[str, list[int | None]] = {}
    for key in ("prompt_tokens", "cached_tokens", "cache_write_tokens", "output_tokens",
                "total_tokens"):  # fmt: skip
        guess = made.chosen.get(key)
        held = columns.values(guess.shape.keys if guess is not None else ("",))
        known[key] = [_as_count(value) for value in held]
    return told_inclusive(Counted(*row) for row in zip(*known.values(), strict=True))
