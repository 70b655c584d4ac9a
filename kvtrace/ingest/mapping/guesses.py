"""Which field of a log is what: names in the words of the trade, checked against their values."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from kvtrace.ingest.mapping.meanings import status_of
from kvtrace.ingest.mapping.shapes import Shape
from kvtrace.ingest.mapping.spec import FieldRef, StatusSpec
from kvtrace.ingest.mapping.values import opened
from kvtrace.ingest.usage import read_usage

_CAMEL: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_SPLIT: Final = re.compile(r"[^a-z0-9]+")
SURE: Final = 0.8
"""From here on a guess needs no `check me`."""
_LEAST: Final = 0.4
_MAX_TOKENS: Final = 16_000_000
_MAX_VOCABULARY: Final = 1 << 20
_MAX_SECONDS: Final = 86_400
_UNITS: Final = frozenset({"s", "sec", "secs", "seconds", "ms", "msec", "millis", "milliseconds",
                           "us", "usec", "micros", "microseconds", "ns", "nanos", "nanoseconds",
                           "in", "epoch", "unix"})  # fmt: skip


@dataclass(frozen=True, slots=True)
class Guess:
    """A field that may be a target."""

    shape: Shape
    score: float
    why: str
    gives: frozenset[str] = frozenset()
    """Counts that a usage object gives."""

    @property
    def is_sure(self) -> bool:
        """Whether name and values both say so."""
        return self.score >= SURE


def words_of(key: str) -> frozenset[str]:
    """The words of a name in lower case: `promptTokens_cached` has prompt, tokens and cached."""
    split = _SPLIT.split(_CAMEL.sub("_", key).lower())
    return frozenset(word for word in split if word)


@dataclass(frozen=True, slots=True)
class _Field:
    """A field with its words, without those of units."""

    shape: Shape
    own: frozenset[str]
    """Of its last key."""
    every: frozenset[str]
    """Of its last key and of those above it."""

    @classmethod
    def of(cls, shape: Shape) -> _Field:
        own = words_of(shape.keys[-1])
        above = frozenset().union(*map(words_of, shape.keys[:-1]))
        return cls(shape, own - _UNITS or own, (own | above) - _UNITS)

    def has(self, *words: str) -> bool:
        return bool(self.own & set(words))

    def says(self, *words: str) -> bool:
        return bool(self.every & set(words))


_Judge = Callable[[_Field], tuple[float, str] | None]


def _is_instant(shape: Shape) -> bool:
    return shape.kind == "date" or (shape.kind == "number" and shape.epoch is not None)


def _instant_words(shape: Shape) -> str:
    if shape.kind == "date":
        words = "dates" if shape.is_zoned else "dates without a zone"
    else:
        words = "epoch numbers" if shape.epoch is not None else "numbers"
    return f"{words}, rising" if shape.is_rising else words


_START: Final = ("start", "started", "begin", "arrival", "arrived", "received", "receive", "submit",
                 "submitted", "created", "request", "enqueue", "enqueued", "issued")  # fmt: skip
_END: Final = ("end", "ended", "finish", "finished", "complete", "completed", "done", "response",
               "stop", "stopped", "closed", "logged", "updated")  # fmt: skip
_TIME: Final = ("timestamp", "ts", "time", "date", "datetime", "at", "t", "when", "clock")
_FIRST: Final = ("token", "chunk", "byte", "response")
_SPANS: Final = ("latency", "duration", "elapsed", "queue", "wait", "service", "response")
_NO_TIME: Final = ("deadline", "expires", "expiry", "birth", "version", "token", "tokens", "ttl")


def _time(field: _Field) -> tuple[float, str] | None:
    shape = field.shape
    is_named = field.has(*_TIME, *_START, *_END)
    if not is_named or field.has(*_NO_TIME) or _is_first(field) or _is_span(field):
        return None
    is_counted = shape.kind == "number" and shape.epoch is None and _counts_on(field)
    if not _is_instant(shape) and not is_counted:
        return None
    score = 0.55 if is_counted else 0.8
    score += 0.1 * field.has(*_START) + 0.05 * shape.is_rising - 0.25 * field.has(*_END)
    return score - 0.05 * (len(shape.keys) - 1), _instant_words(shape)


def _counts_on(field: _Field) -> bool:
    """Whether numbers may count from the start of a trace; logs are mostly in order of time."""
    shape = field.shape
    is_plain = field.has("timestamp", "ts", "arrival", "arrived")
    may_be_time = is_plain or (field.has("time", "t") and shape.is_rising)
    return may_be_time and shape.low is not None and shape.low >= 0 and not field.has(*_SPANS)


def _is_first(field: _Field) -> bool:
    return (field.has("first") and field.has(*_FIRST)) or {"completion", "start"} <= field.own


def _first_token_at(field: _Field) -> tuple[float, str] | None:
    if not _is_instant(field.shape) or not _is_first(field) or _is_span(field):
        return None
    return 0.9, _instant_words(field.shape)


def _finished_at(field: _Field) -> tuple[float, str] | None:
    if not _is_instant(field.shape) or not field.has(*_END) or _is_first(field) or _is_span(field):
        return None
    if field.has(*_START) and not field.has("end", "finished", "completed"):
        return None
    return 0.85, _instant_words(field.shape)


def _is_span(field: _Field) -> bool:
    """Whether a name can only be that of a duration, even if its numbers could be dates."""
    return (
        field.has("latency", "duration", "elapsed", "ttft", "tpot", "itl", "took", "delay")
        or {"time", "to"} <= field.own
        or {"total", "time"} <= field.own
    )


def _is_duration(field: _Field) -> bool:
    shape = field.shape
    may_be_date = shape.epoch is not None and (shape.is_rising or field.has(*_TIME))
    return (
        shape.kind == "number"
        and (_is_span(field) or not may_be_date)
        and shape.low is not None
        and shape.low >= 0
        and shape.high is not None
        and shape.high < _MAX_SECONDS * 10**9
    )


def _duration(*wanted: Callable[[_Field], bool], score: float = 0.9) -> _Judge:
    def judge(field: _Field) -> tuple[float, str] | None:
        shape = field.shape
        if not _is_duration(field) or field.has("tokens", "count", "rate", "tps", "throughput"):
            return None
        if not any(one(field) for one in wanted):
            return None
        return score - 0.02 * (len(shape.keys) - 1), "numbers from 0 on"

    return judge


def _is_ttft(field: _Field) -> bool:
    return field.has("ttft", "ttfb") or (field.has("first") and field.has(*_FIRST))


def _is_tpot(field: _Field) -> bool:
    return (
        field.has("tpot", "itl") or {"inter", "token"} <= field.own or {"per", "token"} <= field.own
        or {"per", "output", "token"} <= field.own
    )  # fmt: skip


_PARTS: Final = ("queue", "queued", "prefill", "decode", "wait", "upstream", "proxy", "first",
                 "ttft", "tokenize", "overhead", "connect", "per", "inter", "timeout")  # fmt: skip
"""Words of durations that are no whole request."""
_WHOLE: Final = ("latency", "duration", "elapsed", "e2e", "took")
_OF_WHOLE: Final = ("response", "total", "request", "process", "service", "run")


def _is_e2e(field: _Field) -> bool:
    if field.has(*_PARTS) or _is_ttft(field) or _is_tpot(field):
        return False
    return field.has(*_WHOLE) or (field.has("time") and field.has(*_OF_WHOLE))


def _count(judge: Callable[[_Field], bool], *, score: float = 0.9) -> _Judge:
    def judged(field: _Field) -> tuple[float, str] | None:
        shape = field.shape
        is_count = (
            shape.kind == "number" and shape.is_whole and shape.epoch is None
            and shape.low is not None and shape.low >= 0
            and shape.high is not None and shape.high <= _MAX_TOKENS
        )  # fmt: skip
        if not is_count or field.has(
            "max", "limit", "budget", "rate", "price", "cost", "per", "min"
        ):
            return None
        if not judge(field):
            return None
        return score - 0.02 * (len(shape.keys) - 1), "whole numbers"

    return judged


_LENGTH: Final = ("tokens", "token", "length", "len", "toks", "tok", "isl", "osl")
_CACHE: Final = ("cached", "cache", "hit", "hits", "reused", "prefix")
_PROMPT: Final = ("prompt", "input", "request", "context", "in", "isl", "prefill")
_OUTPUT: Final = ("completion", "output", "generated", "generation", "response", "reply", "decode",
                  "out", "osl", "generate")  # fmt: skip


def _in_names(field: _Field) -> frozenset[str]:
    """The words of the last key, with `in`, which is no unit here."""
    return words_of(field.shape.keys[-1])


def _is_length(field: _Field) -> bool:
    return bool(_in_names(field) & {*_LENGTH, "num", "count"}) or field.says("tokens", "token")


def _is_prompt(field: _Field) -> bool:
    own = _in_names(field)
    if not own & {"tokens", "token", "toks"}:
        own -= {"request"}  # its length is one in bytes
    return (
        _is_length(field) and bool(own & set(_PROMPT)) and not own & {*_CACHE, *_OUTPUT, "total"}
        and not own & {"char", "chars", "bytes", "id", "index"}
    )  # fmt: skip


def _is_output(field: _Field) -> bool:
    own = _in_names(field)
    return (
        _is_length(field) and bool(own & set(_OUTPUT)) and not own & {*_CACHE, "total", "reasoning"}
        and not own & {"char", "chars", "bytes", "id", "index", "code", "status"}
    )  # fmt: skip


def _is_cached(field: _Field) -> bool:
    own = _in_names(field)
    is_read = bool(own & {"cached", "reused"}) or (
        bool(own & {"cache", "prefix"}) and bool(own & {"read", "hit", "hits", "matched"})
    )
    writes = own & {"creation", "write", "written", "created"}
    return is_read and not writes and _is_length(field) and "miss" not in own


def _is_written(field: _Field) -> bool:
    own = _in_names(field)
    return (
        bool(own & {"cache", "cached"}) and bool(own & {"creation", "write", "written", "created"})
        and _is_length(field)
    )  # fmt: skip


def _is_total(field: _Field) -> bool:
    return field.has("total") and field.says("tokens", "token")


_NO_ID: Final = ("count", "num", "tokens", "token", "time", "length", "start", "end", "ip", "host",
                 "addr", "address", "latency", "latencies", "duration", "size")  # fmt: skip
_ID_MARKS: Final = ("id", "key", "uuid", "rid", "guid", "name")
_MANY: Final = 5


def _is_id(field: _Field) -> bool:
    shape = field.shape
    if shape.kind == "number":
        return shape.is_whole and shape.epoch is None and field.has(*_ID_MARKS)
    return shape.kind == "text" and not shape.is_long_text and not shape.has_blanks


def _id(*names: str, unique: bool = False, bare: float = 0.0) -> _Judge:
    """An id under one of these words; `bare` is the score of a plain `id`."""

    def judge(field: _Field) -> tuple[float, str] | None:
        shape, own = field.shape, field.own
        if not _is_id(field) or field.says(*_NO_ID):
            return None
        named = field.has(*names) or (field.has(*_ID_MARKS) and field.says(*names))
        score = 0.9 if named else bare if own == {"id"} and len(shape.keys) == 1 else 0.0
        all_differ = shape.distinct == shape.known
        if unique:
            score -= 0.0 if all_differ else 0.4
            why = "all different" if all_differ else "some repeated"
        else:
            score -= 0.25 if all_differ and shape.known >= _MANY else 0.0
            why = f"{shape.distinct:,} different"
        is_marked = field.has(*_ID_MARKS) or len(own) == 1
        return score - 0.02 * (len(shape.keys) - 1) - (0 if is_marked else 0.15), why

    return judge


_MAX_NAMES: Final = 64


def _name(*names: str) -> _Judge:
    """One of few names under these words."""

    def judge(field: _Field) -> tuple[float, str] | None:
        shape = field.shape
        if shape.kind != "text" or shape.is_long_text or shape.distinct > _MAX_NAMES:
            return None
        if not field.has(*names) or field.says(*_NO_ID):
            return None
        is_plain = len(field.own) == 1 or field.has("name", "id", "type", "kind")
        return 0.9 - 0.02 * (len(shape.keys) - 1) - (0 if is_plain else 0.05), (
            f"{shape.distinct:,} different"
        )

    return judge


def _turn(field: _Field) -> tuple[float, str] | None:
    shape = field.shape
    if shape.kind != "number" or not shape.is_whole or not field.has("turn", "round", "step"):
        return None
    if field.has("count", "total", "id") or shape.high is None or shape.high > 10_000:
        return None
    return 0.85, "small whole numbers"


_ANY_STATUS: Final = StatusSpec(FieldRef("status", ("status",)))


def _flag_or_name(*names: str, score: float = 0.85) -> _Judge:
    def judge(field: _Field) -> tuple[float, str] | None:
        if field.shape.kind not in ("flag", "text", "object") or field.shape.is_long_text:
            return None
        if not field.own & set(names):
            return None
        return score, "true or false" if field.shape.kind == "flag" else "texts or objects"

    return judge


def _hashes(field: _Field) -> tuple[float, str] | None:
    shape = field.shape
    if shape.kind not in ("numbers", "ids") or _is_token_list(field):
        return None
    named = field.says("hash", "hashes", "block", "blocks", "prefix", "keys", "pages", "chunks")
    if not named or (
        shape.kind == "ids" and not (shape.looks_hashed or field.says("hash", "hashes"))
    ):
        return None
    return 0.9 if field.says("hash", "hashes") else 0.7, f"lists of up to {shape.longest:,} ids"


def _is_token_list(field: _Field) -> bool:
    return field.says("tokens", "token", "ids") and not field.says(
        "hash", "hashes", "block", "blocks", "output", "completion", "response", "generated"
    )


def _token_ids(field: _Field) -> tuple[float, str] | None:
    shape = field.shape
    if shape.kind != "numbers" or not _is_token_list(field) or shape.highest >= _MAX_VOCABULARY:
        return None
    score = 0.9 if field.says("token", "tokens", "prompt", "input") else 0.6
    return score, f"lists of up to {shape.longest:,} ids of a vocabulary"


def _prompt(field: _Field) -> tuple[float, str] | None:
    shape = field.shape
    if field.has("output", "completion", "response", "reply", "answer", "error"):
        return None
    if shape.kind == "messages" and field.has("messages", "prompt", "input", "conversation"):
        return 0.9, "chat messages"
    if shape.kind == "text" and field.has("prompt", "input", "text", "query", "question"):
        return (0.85 if shape.is_long_text else 0.65), "texts"
    return None


JUDGES: Final[dict[str, _Judge]] = {
    "time": _time,
    "first_token_at": _first_token_at,
    "finished_at": _finished_at,
    "request_id": _id("request", "req", "rid", "call", "completion", "uuid", "trace", unique=True,
                      bare=0.85),
    "session": _id("session", "conversation", "chat", "thread", "dialog", "dialogue"),
    "parent": _id("parent", "previous"),
    "tenant": _id("tenant", "user", "customer", "org", "organization", "team", "account", "project",
                  "client"),
    "model": _name("model", "llm", "deployment"),
    "adapter": _name("adapter", "lora"),
    "request_type": _name("endpoint", "route", "operation", "kind", "type", "call"),
    "turn": _turn,
    "prompt_tokens": _count(_is_prompt),
    "cached_tokens": _count(_is_cached),
    "cache_write_tokens": _count(_is_written),
    "output_tokens": _count(_is_output),
    "reasoning_tokens": _count(lambda field: field.has("reasoning", "thinking", "thoughts")),
    "total_tokens": _count(_is_total),
    "ttft": _duration(_is_ttft),
    "tpot": _duration(_is_tpot),
    "queue": _duration(lambda field: field.has("queue", "queued", "queueing", "wait", "waiting",
                                               "pending", "scheduling")),
    "prefill": _duration(lambda field: field.has("prefill") and not _is_length(field)),
    "e2e": _duration(_is_e2e),
    "failed": _flag_or_name("error", "exception", "failed", "failure"),
    "gateway_cache_hit": lambda field: (
        (0.85, "true or false")
        if field.shape.kind == "flag" and field.has("cache", "cached") and not _is_length(field)
        else None
    ),
    "block_hashes": _hashes,
    "token_ids": _token_ids,
    "prompt": _prompt,
}  # fmt: skip
"""Key of the mapping → how well a field suits it, and what its values look like."""


def guesses_of(shapes: Sequence[Shape]) -> dict[str, list[Guess]]:
    """For every key of the mapping the fields that suit it, best first."""
    found: dict[str, list[Guess]] = {}
    for shape in shapes:
        field = _Field.of(shape)
        for target, judge in JUDGES.items():
            judged = judge(field)
            if judged is None:
                continue
            score = judged[0] - 0.2 * (1 - shape.coverage) * (target != "cached_tokens")
            if score >= _LEAST:
                found.setdefault(target, []).append(Guess(shape, round(score, 4), judged[1]))
    for guesses in found.values():
        guesses.sort(key=lambda one: (-one.score, len(one.shape.keys), one.shape.keys))
    return found


_USAGE_COUNTS: Final = ("prompt_tokens", "cached_tokens", "cache_write_tokens", "output_tokens")


def usage_guess(shape: Shape, values: Sequence[object]) -> Guess | None:
    """A field that holds usage objects of a known producer."""
    if shape.kind != "object" or not _Field.of(shape).has("usage", "tokens", "token", "metadata"):
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
    return Guess(shape, 0.95 - 0.02 * len(shape.keys), why, frozenset(gives))


def status_guess(shape: Shape, values: Sequence[object]) -> Guess | None:
    """A field that says how requests ended: HTTP codes, or words for outcomes."""
    field = _Field.of(shape)
    if shape.kind not in ("number", "text", "flag") or shape.is_long_text:
        return None
    named = field.has("status", "code", "outcome", "result", "state", "success", "ok", "reason",
                      "succeeded")  # fmt: skip
    texts = {str(value).strip().lower() for value in values}
    known = sum(status_of(_ANY_STATUS, text) is not None for text in texts)
    if not named or known < len(texts) or (shape.kind == "number" and not _are_codes(shape)):
        return None
    score = 0.9 if field.has("status", "code", "outcome", "success") else 0.75
    return Guess(shape, score - 0.02 * (len(shape.keys) - 1), _status_words(shape))


def _are_codes(shape: Shape) -> bool:
    return shape.is_whole and shape.low is not None and shape.high is not None and (
        shape.low >= 0 and shape.high < 600 and (shape.high >= 100 or shape.high == 0)
    )  # fmt: skip


def _status_words(shape: Shape) -> str:
    return {"number": "HTTP codes", "flag": "true or false"}.get(shape.kind, "words for outcomes")
