"""Which field of a log is what: names in the words of the trade, checked against their values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

import msgspec

from kvtrace.ingest.mapping.judges import JUDGES, MANY, NamedField
from kvtrace.ingest.mapping.meanings import status_of
from kvtrace.ingest.mapping.shapes import Shape
from kvtrace.ingest.mapping.spec import FieldRef, StatusSpec
from kvtrace.ingest.mapping.values import opened
from kvtrace.ingest.usage import read_usage

Level = Literal["sure", "likely", "check me"]
LIKELY: Final = 0.8
"""From here on a name says what the field is; below, it may be something else."""
CHOSEN_FROM: Final = 0.5
"""Below, a guess is only shown as a comment."""
PROVED_SCORE: Final = 0.95
"""Of a duration that is the difference of two instants, whatever it is called."""
_LEAST: Final = 0.4
_PROVED: Final = 0.1


@dataclass(frozen=True, slots=True)
class Guess:
    """A field that may be a target."""

    shape: Shape
    score: float
    why: str
    gives: frozenset[str] = frozenset()
    """Counts that a usage object gives."""
    proofs: tuple[str, ...] = ()
    """What the values say for it, beside other fields or by themselves."""
    doubts: tuple[str, ...] = ()
    """What the values say against it."""

    @property
    def level(self) -> Level:
        """sure: name and values both say so; likely: the name does; check me: neither is plain."""
        if self.doubts or self.score < LIKELY:
            return "check me"
        return "sure" if self.proofs else "likely"

    def proved(self, proof: str) -> Guess:
        """The guess with one thing more that its values say for it."""
        if proof in self.proofs:
            return self
        score = round(self.score + _PROVED, 4)
        return replace(self, score=score, proofs=(*self.proofs, proof))

    def doubted(self, doubt: str) -> Guess:
        """The guess with something that its values say against it."""
        score = round(self.score - 2 * _PROVED, 4)
        return replace(self, score=score, doubts=(*self.doubts, doubt))


_ANY_STATUS: Final = StatusSpec(FieldRef("status", ("status",)))
_REPEATED: Final = ("session", "tenant", "user", "parent")
_PLAIN_KINDS: Final = frozenset({"messages", "numbers", "ids", "flag"})


def _own_proofs(target: str, shape: Shape) -> tuple[str, ...]:
    """What values say by themselves, without other fields."""
    is_enough = shape.known >= MANY
    if target == "request_id" and is_enough and shape.distinct == shape.known:
        return ("no value occurs twice",)
    if target in _REPEATED and is_enough and 1 < shape.distinct < shape.known:
        return ("values come again",)
    if target in ("model", "adapter") and is_enough and shape.distinct < shape.known:
        return ("few values",)
    if target == "turn" and is_enough and shape.distinct < shape.known:
        return ("values come again",)
    return ("their shape says so",) if shape.kind in _PLAIN_KINDS else ()


def guesses_of(shapes: Sequence[Shape]) -> dict[str, list[Guess]]:
    """For every key of the mapping the fields that suit it, best first."""
    found: dict[str, list[Guess]] = {}
    for shape in shapes:
        field = NamedField.of(shape)
        for target, judge in JUDGES.items():
            judged = judge(field)
            if judged is None:
                continue
            score = judged[0] - 0.2 * (1 - shape.coverage) * (target != "cached_tokens")
            if score >= _LEAST:
                proofs = _own_proofs(target, shape)
                guess = Guess(shape, round(score, 4), judged[1], proofs=proofs)
                found.setdefault(target, []).append(guess)
    for guesses in found.values():
        guesses.sort(key=lambda one: (-one.score, len(one.shape.keys), one.shape.keys))
    return found


_USAGE_COUNTS: Final = ("prompt_tokens", "cached_tokens", "cache_write_tokens", "output_tokens")


def usage_guess(shape: Shape, values: Sequence[object]) -> Guess | None:
    """A field that holds usage objects of a known producer."""
    if shape.kind != "object" or not NamedField.of(shape).has(
        "usage", "tokens", "token", "metadata"
    ):
        return None
    names: set[str] = set()
    gives: set[str] = set()
    for value in values:
        try:
            usage = read_usage(dict(opened(value)))
        except msgspec.ValidationError:
            continue
        if usage is not None and usage.prompt_tokens is not None:
            names.add(usage.shape)
            gives |= {key for key in _USAGE_COUNTS if getattr(usage, key) is not None}
        else:
            return None
    if not names:
        return None
    why = f"usage objects ({', '.join(sorted(names))})"
    proofs = ("every one is read as such",)
    return Guess(shape, 0.95 - 0.02 * len(shape.keys), why, frozenset(gives), proofs)


def status_guess(shape: Shape, values: Sequence[object]) -> Guess | None:
    """A field that says how requests ended: HTTP codes, or words for outcomes."""
    field = NamedField.of(shape)
    if shape.kind not in ("number", "text", "flag") or shape.is_long_text:
        return None
    named = field.has("status", "code", "outcome", "result", "state", "success", "ok", "reason",
                      "succeeded")  # fmt: skip
    texts = {str(value).strip().lower() for value in values}
    known = sum(status_of(_ANY_STATUS, text) is not None for text in texts)
    if not named or known < len(texts) or (shape.kind == "number" and not _are_codes(shape)):
        return None
    score = 0.9 if field.has("status", "code", "outcome", "success") else 0.75
    proofs = ("every value is a known one",)
    score -= 0.02 * (len(shape.keys) - 1)
    return Guess(shape, score, _status_words(shape), proofs=proofs)


def _are_codes(shape: Shape) -> bool:
    return shape.is_whole and shape.low is not None and shape.high is not None and (
        shape.low >= 0 and shape.high < 600 and (shape.high >= 100 or shape.high == 0)
    )  # fmt: skip


def _status_words(shape: Shape) -> str:
    return {"number": "HTTP codes", "flag": "true or false"}.get(shape.kind, "words for outcomes")
