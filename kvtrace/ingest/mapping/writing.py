"""The text of a suggested mapping: every line with its reason, alternatives beside it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Final

from kvtrace.ingest.mapping.guesses import Guess
from kvtrace.ingest.mapping.judges import says_start
from kvtrace.ingest.mapping.parse import unit_in_name
from kvtrace.ingest.mapping.spec import UNIT_WORDS
from kvtrace.ingest.mapping.suggest import Suggested, spelled_toml, unit_of

_FIELDS: Final = (
    "request_id", "session", "parent", "turn", "tenant", "user", "model", "adapter", "request_type",
    "usage", "prompt_tokens", "cached_tokens", "cache_write_tokens", "output_tokens",
    "reasoning_tokens", "total_tokens", "ttft", "tpot", "queue", "prefill", "e2e",
    "first_token_at", "finished_at", "status", "failed", "gateway_cache_hit", "block_hashes",
    "token_ids", "prompt",
)  # fmt: skip
"""In the order in which they are written."""
_WANTED: Final = {
    "request_id": "joins this log with others",
    "session": "tells turns of one conversation",
    "prompt_tokens": "without it nothing can be sized",
    "cached_tokens": "without it no hit is known; vLLM writes it with"
    " --enable-prompt-tokens-details",
    "output_tokens": "tells decode from prefill",
    "ttft": "shows what a hit gains",
    "e2e": "shows how long a request held its KV cache",
    "block_hashes": "the best evidence; or token_ids, or prompt, which are hashed while reading",
}
"""What is worth having → why."""
_COUNTED: Final = ("prompt_tokens", "cached_tokens", "output_tokens")
_BLOCKS: Final = ("block_hashes", "token_ids", "prompt")
_MAX_OTHERS: Final = 3
_MARK: Final = "check me"
_UNITS: Final = {0: "s", -3: "ms", -6: "us", -9: "ns"}


def render_suggestion(made: Sequence[Suggested]) -> str:
    """The TOML of one file, or of several as [[source]] tables."""
    several = len(made) > 1
    files = ", ".join(_safe(one.name) for one in made[:3]) + (" …" if len(made) > 3 else "")
    lines = [
        f"# A mapping for {files}, suggested by kvtrace from the records at the start.",
        "# (sure): the name says it and the values prove it. (likely): the name says it.",
        f"# ({_MARK}): the name or the unit may mean something else. Lines that begin with `#` are",
        "# not used: take the sign away where one is right. All keys: docs/mapping.md",
        "# Then: kvtrace analyze LOGS --mapping map.toml",
    ]
    for one in made:
        lines += ["", *_source(one, "source." if several else "")]
    return "\n".join([*lines, ""])


def _safe(name: str) -> str:
    return "".join(char if char.isprintable() else "?" for char in name)


def _source(made: Suggested, prefix: str) -> Iterator[str]:
    if prefix:
        yield "[[source]]"
    if made.checked:
        yield f"# Tried: {made.checked}."
    yield f"match = {json.dumps(_safe(made.name).rpartition('/')[2], ensure_ascii=False)}"
    framing = "csv" if made.head.header else made.head.framing
    yield f'framing = "{framing}"'
    if made.head.delimiter != ",":
        yield f"delimiter = {json.dumps(made.head.delimiter)}"
    if made.records is not None:
        yield f"records = {spelled_toml(made.records)}  # the list of requests in the document"
    yield from _time(made, prefix)
    yield ""
    yield f"[{prefix}fields]"
    for key in _FIELDS:
        yield from _field(made, key)
    yield from _semantics(made, prefix)


def _comment(guess: Guess, *more: str, is_sure: bool = True) -> str:
    said = f"{guess.shape.known:,} of {guess.shape.records:,} records: {guess.why}"
    parts = [said, *guess.proofs, *guess.doubts, *filter(None, more)]
    return f"# {'; '.join(parts)} ({guess.level if is_sure else _MARK})"


def _time(made: Suggested, prefix: str) -> Iterator[str]:
    time = made.chosen.get("time")
    yield ""
    if time is None:
        yield from _no_time(made, prefix)
        return
    shape = time.shape
    yield f"[{prefix}time]"
    yield f"field = {spelled_toml(shape.keys)}  {_comment(time)}"
    for guess in _unused(made, "time"):
        yield f"# field = {spelled_toml(guess.shape.keys)}  {_comment(guess)}"
    if shape.kind == "date":
        yield 'unit = "iso"'
        if not shape.is_zoned:
            yield f'zone = "UTC"  # the dates state no zone ({_MARK})'
    elif shape.epoch is not None and shape.is_of_units:
        yield f'unit = "auto"  # of several units, each read by its magnitude ({_MARK})'
    elif shape.epoch is not None:
        yield f'unit = "{_UNITS[shape.epoch]}"  # by magnitude (sure)'
    else:
        yield from _counted_unit(made)
    yield _meaning(made, time)


def _meaning(made: Suggested, time: Guess) -> str:
    if made.is_end:
        return f'meaning = "end"  # by its name; the start is it less the duration ({_MARK})'
    if says_start(time.shape.keys[-1]):
        return 'meaning = "start"  # by its name (likely)'
    if time.proofs:
        return 'meaning = "start"  # the end comes after it (likely)'
    return (
        'meaning = "start"  # the name does not tell; "end" if the line is written when a request'
        f" ends, which needs `e2e` ({_MARK})"
    )


def _no_time(made: Suggested, prefix: str) -> Iterator[str]:
    yield f"# [{prefix}time]"
    if made.lone_end is not None:
        end = made.lone_end
        yield f"# field = {spelled_toml(end.shape.keys)}  {_comment(end)}"
        yield '# meaning = "end"  # by its name; no duration leads from it to the start, so that'
        yield "# arrivals are unknown: map `e2e`, or leave `meaning` out to take it for the start"
        return
    yield '# field = "…"  # no field looks like the time of a request: the order of the file is'
    yield "# kept, but nothing can be replayed in time"


def _unused(made: Suggested, key: str) -> list[Guess]:
    """What else may be the field, best first; no field that is used already."""
    taken = {one.shape.keys for one in made.chosen.values()}
    return [one for one in made.others.get(key, []) if one.shape.keys not in taken][:_MAX_OTHERS]


def _counted_unit(made: Suggested) -> Iterator[str]:
    """The unit of times that count from a start: by name, else the one that gives a usual rate."""
    time = made.chosen["time"].shape
    named = unit_in_name(time.keys[-1])
    if named is not None:
        yield f'unit = "{named}"  # by the name; counts from some start (likely)'
    else:
        unit = "s" if not time.is_whole else "ms"
        yield f'unit = "{unit}"  # counts from some start, so nothing tells the unit ({_MARK})'
    yield 'clock = "relative"'


def _field(made: Suggested, key: str) -> Iterator[str]:
    guess = made.chosen.get(key)
    others = _unused(made, key)
    if guess is not None:
        yield f"{key} = {_value(made, key, guess)}  {_remark(made, key, guess)}"
    elif _is_open(made, key):
        yield f'# {key} = "…"  # not found: {_WANTED[key]}'
    for other in others:
        yield f"# {key} = {_value(made, key, other)}  {_remark(made, key, other)}"


def _is_open(made: Suggested, key: str) -> bool:
    """Whether a key is worth a line that says it was not found."""
    if key not in _WANTED or _unused(made, key):
        return False
    if key in _COUNTED and "usage" in made.chosen:
        return False
    if key == "block_hashes":
        return not any(way in made.chosen for way in _BLOCKS)
    instead = {"ttft": "first_token_at", "e2e": "finished_at"}.get(key)
    return instead not in made.chosen


def _value(made: Suggested, key: str, guess: Guess) -> str:
    path = spelled_toml(guess.shape.keys)
    unit = unit_of(made, key, guess)
    if unit is not None:
        return f'{{ field = {path}, unit = "{unit.unit}" }}'
    if key == "block_hashes":
        size = "" if made.block_tokens is None else f", block_size = {made.block_tokens[0]}"
        return f"{{ field = {path}{size} }}"
    if key == "turn":
        first = 1 if guess.shape.low is not None and guess.shape.low >= 1 else 0
        return f"{{ field = {path}, first = {first} }}"
    if key == "status" and guess.shape.kind == "number":
        return f"{{ field = {path}, cancelled = [0, 499] }}"
    return path


def _remark(made: Suggested, key: str, guess: Guess) -> str:
    unit = unit_of(made, key, guess)
    if unit is not None:
        return _comment(guess, f"{UNIT_WORDS[unit.unit]}: {unit.why}", is_sure=unit.is_sure)
    if key == "block_hashes":
        if made.block_tokens is None:
            more = "the block size is inferred from the prompt lengths, or state `block_size`"
            return _comment(guess, more, is_sure=False)
        more = "block size by lengths and ids; `chained = false` if an id names one block alone"
        return _comment(guess, more, is_sure=made.block_tokens[1])
    if key == "prompt":
        return _comment(guess, "hashed while reading, never stored")
    if key == "token_ids":
        return _comment(guess, "hashed while reading; the prompt's alone, not the reply's")
    return _comment(guess)


def _semantics(made: Suggested, prefix: str) -> Iterator[str]:
    held = {"cached_tokens", "cache_write_tokens"} & set(made.chosen)
    if "prompt_tokens" not in made.chosen or not held:
        return
    yield ""
    yield f"[{prefix}semantics]"
    if made.inclusive is None:
        yield (
            "prompt_includes_cached = true  # as most producers count; nothing in the records tells"
            f" ({_MARK})"
        )
    else:
        says = str(made.inclusive[0]).lower()
        yield f"prompt_includes_cached = {says}  # {made.inclusive[1]} (sure)"
