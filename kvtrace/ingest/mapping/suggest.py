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
from kvtrace.ingest.mapping.guesses import Guess, guesses_of, status_guess, usage_guess
from kvtrace.ingest.mapping.head import FileHead, look_at
from kvtrace.ingest.mapping.meanings import Counted, told_inclusive
from kvtrace.ingest.mapping.names import flattened, is_name
from kvtrace.ingest.mapping.parse import unit_in_name
from kvtrace.ingest.mapping.shapes import known_values, shape_of
from kvtrace.ingest.mapping.values import Keys, opened

_COUNTS: Final = ("prompt_tokens", "cached_tokens", "cache_write_tokens", "output_tokens",
                  "reasoning_tokens", "total_tokens")  # fmt: skip
_OF_USAGE: Final = ("prompt_tokens", "cached_tokens", "cache_write_tokens", "output_tokens")
_MIN_OBJECTS: Final = 2
_CUT_LIST: Final = re.compile(rb'\A\s*\{[^\[{]{0,4096}?"([^"\\]{1,64})"\s*:\s*\[\s*\{')
"""The first key of a document whose value is a list of objects, with plain values before it."""


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
    units: dict[str, tuple[str, bool]] = field(default_factory=dict)
    """Duration → (unit, whether it is sure)."""
    block_tokens: tuple[int, bool] | None = None
    inclusive: tuple[bool, str] | None = None


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
    found = guesses_of(shapes)
    _add(found, "status", (status_guess(shape, values[shape.keys]) for shape in shapes))
    _add(found, "usage", (usage_guess(shape, values[shape.keys]) for shape in shapes))
    chosen, others = _choose(found)
    made = Suggested(name, head, records, chosen, others)
    made = _with_time(made)
    return replace(
        made,
        units=_units(made, examples),
        block_tokens=_block_tokens(made, examples),
        inclusive=_inclusive(made, examples),
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
        if key in chosen or guess.shape.keys in used:
            continue
        chosen[key] = guess
        used.add(guess.shape.keys)
    others = {
        key: [guess for guess in guesses if guess is not chosen.get(key)]
        for key, guesses in found.items()
    }
    _settle(chosen, others)
    return chosen, {key: guesses for key, guesses in others.items() if guesses}


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
    if "e2e" in chosen and "time" in chosen:
        step_back("finished_at")
    if "ttft" in chosen:
        step_back("first_token_at")
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
    others = {key: list(guesses) for key, guesses in made.others.items()}
    if "time" not in chosen and "finished_at" in chosen:
        chosen["time"] = chosen.pop("finished_at")
    others.pop("finished_at", None) if "time" not in chosen else None
    time = chosen.get("time")
    if time is None:
        for key in ("first_token_at", "finished_at"):
            chosen.pop(key, None)
        return replace(made, chosen=chosen, others=others)
    ends = others.get("finished_at", [])
    is_end = any(guess.shape.keys == time.shape.keys for guess in ends) or (
        time is made.chosen.get("finished_at")
    )
    is_end = is_end and "e2e" in chosen
    if is_end:
        chosen.pop("first_token_at", None)
    return replace(made, chosen=chosen, others=others, is_end=is_end)


def spelled_toml(keys: Keys) -> str:
    """A field as the mapping writes it: a dotted path, or a list where a key has a point."""
    if any("." in key for key in keys):
        return json.dumps(list(keys), ensure_ascii=False)
    return json.dumps(".".join(keys), ensure_ascii=False)


def _units(
    made: Suggested, examples: Sequence[Mapping[str, object]]
) -> dict[str, tuple[str, bool]]:
    """Units by name, else by what is plausible for such a duration."""
    outputs = made.chosen.get("output_tokens") or next(
        iter(made.others.get("output_tokens", ())), None
    )
    units: dict[str, tuple[str, bool]] = {}
    for key in ("e2e", "ttft", "queue", "prefill", "tpot"):
        guess = made.chosen.get(key)
        if guess is None:
            continue
        named = unit_in_name(guess.shape.keys[-1])
        if named is not None:
            units[key] = (named, True)
            continue
        median = guess.shape.middle or Decimal(0)
        if key == "e2e" and outputs is not None and outputs.shape.middle:
            median_gap = median / max(outputs.shape.middle, Decimal(1))
            units[key] = (_unit_by(median_gap, _GAP_S), False)
        elif key != "e2e" and "e2e" in units and not units["e2e"][1]:
            units[key] = units["e2e"]
        else:
            units[key] = (_unit_by(median, _TYPICAL_S[key]), False)
    return units


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


def _numbers_at(examples: Sequence[Mapping[str, object]], keys: Keys) -> list[object]:
    found: list[object] = []
    for example in examples:
        value: object = example
        for key in keys:
            value = opened(value).get(key)
        found.append(value)
    return found


def _as_count(value: object) -> int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    text = value.strip() if isinstance(value, str) else ""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 16 else None


def _block_tokens(
    made: Suggested, examples: Sequence[Mapping[str, object]]
) -> tuple[int, bool] | None:
    """(tokens a block, whether it is sure), from ids and lengths of the first prompts."""
    blocks = made.chosen.get("block_hashes")
    prompt = made.chosen.get("prompt_tokens")
    if blocks is None or prompt is None:
        return None
    pairs = [
        (length, len(opened(held)))
        for value, held in zip(
            _numbers_at(examples, prompt.shape.keys),
            _numbers_at(examples, blocks.shape.keys),
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


def _inclusive(
    made: Suggested, examples: Sequence[Mapping[str, object]]
) -> tuple[bool, str] | None:
    if "prompt_tokens" not in made.chosen:
        return None
    columns: dict[str, list[int | None]] = {}
    for key in ("prompt_tokens", "cached_tokens", "cache_write_tokens", "output_tokens",
                "total_tokens"):  # fmt: skip
        guess = made.chosen.get(key)
        held = [None] * len(examples) if guess is None else _numbers_at(examples, guess.shape.keys)
        columns[key] = [_as_count(value) for value in held]
    return told_inclusive(Counted(*row) for row in zip(*columns.values(), strict=True))
