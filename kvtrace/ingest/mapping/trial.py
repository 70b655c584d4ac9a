"""Whether a suggested mapping loads and reads the start of its own file."""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from dataclasses import dataclass, replace
from typing import Final

from kvtrace.errors import UsageError
from kvtrace.ingest.contract import ReadContext, Tally
from kvtrace.ingest.files.frame import FrameCounts, frame
from kvtrace.ingest.mapping.parse import parse_mapping
from kvtrace.ingest.mapping.reader import recognise_mapped
from kvtrace.ingest.mapping.suggest import Suggested, spelled_toml
from kvtrace.ingest.mapping.writing import render_suggestion

_MAX_STEPS: Final = 8
_MOST: Final = 0.5
_QUOTED: Final = re.compile(r"`([^`]+)`")
_HEAD_BYTES: Final = 64 * 1024


@dataclass(frozen=True, slots=True)
class _Trial:
    """What the mapping made of the start of the file."""

    read: int = 0
    refused: int = 0
    fault: str = ""
    """Why it does not load, or what most refused records have."""


def checked(made: Suggested, data: bytes) -> Suggested:
    """The suggestion without the fields that keep it from reading its own file, and what it reads.

    A field that stops the mapping, or that most records are refused for, becomes a comment.
    """
    for _step in range(_MAX_STEPS):
        trial = _tried(made, data)
        if not trial.fault:
            said = f"it loads, and reads {trial.read:,} records at the start of the file"
            more = f"; {trial.refused:,} are refused" if trial.refused else ""
            return replace(made, checked=said + more)
        key = _blamed(made, trial.fault)
        if key is None:
            return replace(made, checked=f"not read by it: {trial.fault}")
        made = _without(made, key)
    return replace(made, checked="not read by it")


def _tried(made: Suggested, data: bytes) -> _Trial:
    try:
        mapping = parse_mapping(tomllib.loads(render_suggestion([made])), "map.toml")
        found = recognise_mapped(mapping, data, made.name)
    except UsageError as error:
        return _Trial(fault=error.cause or error.message)
    if found.format is None:
        return _Trial(fault=found.reason)
    records = list(frame((data,), found.framing, FrameCounts()))
    if len(data) >= _HEAD_BYTES and len(records) > 1:
        records.pop()  # the head may cut it
    tally = Tally()
    read = sum(1 for _row in found.format.read(iter(records), ReadContext("", tally, 0)))
    refused = len(tally.rejects)
    causes = Counter(str(detail or reason) for _record, reason, detail in tally.rejects)
    if refused > _MOST * len(records) and causes:
        return _Trial(read, refused, causes.most_common(1)[0][0])
    return _Trial(read, refused)


def _blamed(made: Suggested, fault: str) -> str | None:
    """The key of the mapping that a fault names, by its field or by itself."""
    for name in _QUOTED.findall(fault):
        for key, guess in made.chosen.items():
            if name in (".".join(guess.shape.keys), spelled_toml(guess.shape.keys)):
                return key
            if name.removeprefix("fields.").partition(".")[0] == key:
                return key
    return None


def _without(made: Suggested, key: str) -> Suggested:
    chosen = dict(made.chosen)
    guess = chosen.pop(key).doubted("kept the mapping from reading its own file")
    others = {**made.others, key: [guess, *made.others.get(key, [])]}
    if key == "time":
        chosen.pop("first_token_at", None)
        chosen.pop("finished_at", None)
    return replace(made, chosen=chosen, others=others, is_end=made.is_end and key != "time")
