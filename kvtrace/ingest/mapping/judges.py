"""Which field of a log may be what: names in the words of the trade, and the kind of values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from kvtrace.ingest.mapping.parse import unit_in_name
from kvtrace.ingest.mapping.shapes import Shape
from kvtrace.ingest.mapping.vocabulary import UNITS, words_of

WEAK: Final = 0.6
"""Score of a name that may mean other things."""
_MAX_TOKENS: Final = 16_000_000
_MAX_VOCABULARY: Final = 1 << 20
_MAX_SECONDS: Final = 86_400


@dataclass(frozen=True, slots=True)
class NamedField:
    """A field with its words, without those of units."""

    shape: Shape
    own: frozenset[str]
    """Of its last key."""
    every: frozenset[str]
    """Of its last key and of those above it."""

    @classmethod
    def of(cls, shape: Shape) -> NamedField:
        """The words of a field."""
        own = words_of(shape.keys[-1])
        above = frozenset().union(*map(words_of, shape.keys[:-1]))
        return cls(shape, own - UNITS or own, (own | above) - UNITS)

    def has(self, *words: str) -> bool:
        """Whether its own name has one of these words."""
        return bool(self.own & set(words))

    def says(self, *words: str) -> bool:
        """Whether its name or one above it has one of these words."""
        return bool(self.every & set(words))


_Judge = Callable[[NamedField], tuple[float, str] | None]


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
_FINAL: Final = frozenset({"end", "ended", "finish", "finished", "complete", "completed", "done"})
"""Words that only an end has."""
_FIRST: Final = ("token", "chunk", "byte", "response")
_SPANS: Final = ("latency", "duration", "elapsed", "queue", "wait", "service", "response")
_NO_TIME: Final = ("deadline", "expires", "expiry", "birth", "version", "token", "tokens", "ttl")


def _time(field: NamedField) -> tuple[float, str] | None:
    shape = field.shape
    is_named = field.has(*_TIME, *_START, *_END)
    if not is_named or field.has(*_NO_TIME) or _is_first(field) or _is_span(field):
        return None
    if field.own & _FINAL and not field.has(*_START):
        return None
    is_counted = shape.kind == "number" and shape.epoch is None and _counts_on(field)
    if not _is_instant(shape) and not is_counted:
        return None
    score = 0.55 if is_counted else 0.8
    score += 0.1 * field.has(*_START) + 0.05 * shape.is_rising - 0.25 * field.has(*_END)
    return score - 0.05 * (len(shape.keys) - 1), _instant_words(shape)


def _counts_on(field: NamedField) -> bool:
    """Whether numbers may count from the start of a trace; logs are mostly in order of time."""
    shape = field.shape
    is_plain = field.has("timestamp", "ts", "arrival", "arrived")
    may_be_time = is_plain or (field.has("time", "t") and shape.is_rising)
    return may_be_time and shape.low is not None and shape.low >= 0 and not field.has(*_SPANS)


def says_start(name: str) -> bool:
    """Whether the name of an instant says that it is the start of something."""
    return bool(words_of(name) & {*_START, "start"}) and not words_of(name) & _FINAL


def _is_first(field: NamedField) -> bool:
    return (field.has("first") and field.has(*_FIRST)) or {"completion", "start"} <= field.own


def _first_token_at(field: NamedField) -> tuple[float, str] | None:
    if not _is_instant(field.shape) or not _is_first(field) or _is_span(field):
        return None
    return 0.9, _instant_words(field.shape)


def _finished_at(field: NamedField) -> tuple[float, str] | None:
    if not _is_instant(field.shape) or not field.has(*_END) or _is_first(field) or _is_span(field):
        return None
    if field.has(*_START) and not field.own & _FINAL:
        return None
    return 0.85, _instant_words(field.shape)


def _is_span(field: NamedField) -> bool:
    """Whether a name can only be that of a duration, even if its numbers could be dates."""
    return (
        field.has("latency", "duration", "elapsed", "ttft", "tpot", "itl", "took", "delay")
        or {"time", "to"} <= field.own
        or {"total", "time"} <= field.own
    )


def _is_duration(field: NamedField) -> bool:
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


def _duration(
    wanted: Callable[[NamedField], bool], weak: Callable[[NamedField], bool] | None = None
) -> _Judge:
    def judge(field: NamedField) -> tuple[float, str] | None:
        shape = field.shape
        if not _is_duration(field) or field.has("tokens", "count", "rate", "tps", "throughput"):
            return None
        if wanted(field):
            return 0.9 - 0.02 * (len(shape.keys) - 1), "numbers from 0 on"
        if weak is not None and weak(field):
            return WEAK, "numbers from 0 on, and a name that may mean other durations"
        return None

    return judge


def _is_ttft(field: NamedField) -> bool:
    return field.has("ttft", "ttfb") or (field.has("first") and field.has(*_FIRST))


def _is_tpot(field: NamedField) -> bool:
    return (
        field.has("tpot", "itl") or {"inter", "token"} <= field.own or {"per", "token"} <= field.own
        or {"per", "output", "token"} <= field.own
    )  # fmt: skip


_PARTS: Final = ("queue", "queued", "prefill", "decode", "wait", "upstream", "proxy", "first",
                 "ttft", "tokenize", "overhead", "connect", "per", "inter", "timeout")  # fmt: skip
"""Words of durations that are no whole request."""
_WHOLE: Final = ("latency", "duration", "elapsed", "e2e", "took")
_OF_WHOLE: Final = ("response", "total", "request", "process", "service", "run")


def _is_e2e(field: NamedField) -> bool:
    if field.has(*_PARTS) or _is_ttft(field) or _is_tpot(field):
        return False
    has_unit = unit_in_name(field.shape.keys[-1]) is not None
    return (
        field.has(*_WHOLE)
        or (field.has("time") and field.has(*_OF_WHOLE))
        or (has_unit and field.has("total", "response", "run"))
    )


def _may_be_e2e(field: NamedField) -> bool:
    """Names that say a duration, but not of what: `seconds`, `processing`, `runtime`."""
    return field.own <= UNITS - {"in", "epoch", "unix"} or (
        field.has("processing", "runtime", "wall", "total", "spent") and not field.has(*_PARTS)
    )


def _count(
    judge: Callable[[NamedField], bool], weak: Callable[[NamedField], bool] | None = None
) -> _Judge:
    def judged(field: NamedField) -> tuple[float, str] | None:
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
        if judge(field):
            return 0.9 - 0.02 * (len(shape.keys) - 1), "whole numbers"
        if weak is not None and weak(field) and not _in_names(field) & _NO_COUNT:
            return WEAK, "whole numbers, and a name that may mean other things"
        return None

    return judged


_LENGTH: Final = ("tokens", "token", "length", "len", "toks", "tok", "isl", "osl")
_CACHE: Final = ("cached", "cache", "hit", "hits", "reused", "prefix")
_PROMPT: Final = ("prompt", "input", "request", "context", "in", "isl", "prefill")
_OUTPUT: Final = ("completion", "output", "generated", "generation", "response", "reply", "decode",
                  "out", "osl", "generate")  # fmt: skip


def _in_names(field: NamedField) -> frozenset[str]:
    """The words of the last key, with `in`, which is no unit here."""
    return words_of(field.shape.keys[-1])


def _is_length(field: NamedField) -> bool:
    return bool(_in_names(field) & {*_LENGTH, "num", "count"}) or field.says("tokens", "token")


def _is_prompt(field: NamedField) -> bool:
    own = _in_names(field)
    if not own & {"tokens", "token", "toks"}:
        own -= {"request"}  # its length is one in bytes
    return (
        _is_length(field) and bool(own & set(_PROMPT)) and not own & {*_CACHE, *_OUTPUT, "total"}
        and not own & {"char", "chars", "bytes", "id", "index"}
    )  # fmt: skip


def _is_output(field: NamedField) -> bool:
    own = _in_names(field)
    return (
        _is_length(field) and bool(own & set(_OUTPUT)) and not own & {*_CACHE, "total", "reasoning"}
        and not own & {"char", "chars", "bytes", "id", "index", "code", "status"}
    )  # fmt: skip


def _is_cached(field: NamedField) -> bool:
    own = _in_names(field)
    is_read = bool(own & {"cached", "reused"}) or (
        bool(own & {"cache", "prefix"}) and bool(own & {"read", "hit", "hits", "matched"})
    )
    writes = own & {"creation", "write", "written", "created"}
    has_length = _is_length(field) or own == {"cache", "read"}
    return is_read and not writes and has_length and "miss" not in own


_NO_COUNT: Final = frozenset({"char", "chars", "bytes", "id", "index", "code", "status", "cost",
                             "time", "ms", "s", "seconds", "ratio", "user", "cores"})  # fmt: skip


def _may_be_prompt(field: NamedField) -> bool:
    own = _in_names(field) - {"num", "size"}
    is_short = own <= {"p", "i"} and field.says("tokens", "token", "usage")
    return (own <= {"prompt", "input", "in", "context"} or is_short) and bool(own)


def _may_be_output(field: NamedField) -> bool:
    own = _in_names(field) - {"num", "size"}
    is_short = own <= {"c", "o"} and field.says("tokens", "token", "usage")
    named = {"completion", "output", "out", "generated", "generation", "reply"}
    return (own <= named or is_short) and bool(own)


def _may_be_cached(field: NamedField) -> bool:
    """`hit`, `reused`, `cache_tokens`; not a flag that counts 0 and 1."""
    own, high = _in_names(field), field.shape.high
    named = own & {"cached", "reused", "hit", "hits", "matched"} or {"cache", "read"} <= own
    of_tokens = own & {"cache", "prefix"} and own & {"tokens", "token", "length"}
    other = own & {"creation", "write", "written", "created", "miss", "output", "request"}
    return bool(named or of_tokens) and not other and high is not None and high > 1


def _may_be_written(field: NamedField) -> bool:
    own = _in_names(field)
    return bool(own & {"cache", "cached"} and own & {"creation", "write", "written"})


def _is_written(field: NamedField) -> bool:
    own = _in_names(field)
    return (
        bool(own & {"cache", "cached"}) and bool(own & {"creation", "write", "written", "created"})
        and _is_length(field)
    )  # fmt: skip


def _is_total(field: NamedField) -> bool:
    return field.has("total") and field.says("tokens", "token")


_NO_ID: Final = ("count", "num", "tokens", "token", "time", "length", "start", "end", "ip", "host",
                 "addr", "address", "latency", "latencies", "duration", "size")  # fmt: skip
_ID_MARKS: Final = ("id", "key", "uuid", "rid", "guid", "name")
MANY: Final = 5


def _is_id(field: NamedField) -> bool:
    shape = field.shape
    if shape.kind == "number":
        return shape.is_whole and shape.epoch is None and field.has(*_ID_MARKS)
    return shape.kind == "text" and not shape.is_long_text and not shape.has_blanks


def _id(*names: str, unique: bool = False, bare: float = 0.0) -> _Judge:
    """An id under one of these words; `bare` is the score of a plain `id`."""

    def judge(field: NamedField) -> tuple[float, str] | None:
        shape, own = field.shape, field.own
        if not _is_id(field) or field.says(*_NO_ID):
            return None
        named = field.has(*names) or (field.has(*_ID_MARKS) and field.says(*names))
        score = 0.9 if named else bare if own == {"id"} and len(shape.keys) == 1 else 0.0
        if unique and not named and not score and own and own <= {"key", "uuid", "guid"}:
            score = WEAK
        all_differ = shape.distinct == shape.known
        if unique:
            score -= 0.0 if all_differ else 0.4
            why = "all different" if all_differ else "some repeated"
        else:
            score -= 0.25 if all_differ and shape.known >= MANY else 0.0
            why = f"{shape.distinct:,} different"
        is_marked = field.has(*_ID_MARKS) or len(own) == 1
        return score - 0.02 * (len(shape.keys) - 1) - (0 if is_marked else 0.15), why

    return judge


_MAX_NAMES: Final = 64


def _name(*names: str) -> _Judge:
    """One of few names under these words."""

    def judge(field: NamedField) -> tuple[float, str] | None:
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


def _turn(field: NamedField) -> tuple[float, str] | None:
    shape = field.shape
    if shape.kind != "number" or not shape.is_whole or not field.has("turn", "round", "step"):
        return None
    if field.has("count", "total", "id") or shape.high is None or shape.high > 10_000:
        return None
    return 0.85, "small whole numbers"


def _flag_or_name(*names: str, score: float = 0.85) -> _Judge:
    def judge(field: NamedField) -> tuple[float, str] | None:
        if field.shape.kind not in ("flag", "text", "object") or field.shape.is_long_text:
            return None
        if not field.own & set(names):
            return None
        return score, "true or false" if field.shape.kind == "flag" else "texts or objects"

    return judge


def _hashes(field: NamedField) -> tuple[float, str] | None:
    shape = field.shape
    if shape.kind not in ("numbers", "ids") or _is_token_list(field):
        return None
    named = field.says("hash", "hashes", "block", "blocks", "prefix", "keys", "pages", "chunks")
    if not named or (
        shape.kind == "ids" and not (shape.looks_hashed or field.says("hash", "hashes"))
    ):
        return None
    return 0.9 if field.says("hash", "hashes") else 0.7, f"lists of up to {shape.longest:,} ids"


def _is_token_list(field: NamedField) -> bool:
    return field.says("tokens", "token", "ids") and not field.says(
        "hash", "hashes", "block", "blocks", "output", "completion", "response", "generated"
    )


def _token_ids(field: NamedField) -> tuple[float, str] | None:
    shape = field.shape
    if shape.kind != "numbers" or not _is_token_list(field) or shape.highest >= _MAX_VOCABULARY:
        return None
    score = 0.9 if field.says("token", "tokens", "prompt", "input") else 0.6
    return score, f"lists of up to {shape.longest:,} ids of a vocabulary"


def _prompt(field: NamedField) -> tuple[float, str] | None:
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
    "tenant": _id("tenant", "customer", "org", "organization", "team", "account", "project",
                  "client"),
    "user": _id("user", "enduser"),
    "model": _name("model", "llm", "deployment"),
    "adapter": _name("adapter", "lora"),
    "request_type": _name("endpoint", "route", "operation", "kind", "type", "call"),
    "turn": _turn,
    "prompt_tokens": _count(_is_prompt, _may_be_prompt),
    "cached_tokens": _count(_is_cached, _may_be_cached),
    "cache_write_tokens": _count(_is_written, _may_be_written),
    "output_tokens": _count(_is_output, _may_be_output),
    "reasoning_tokens": _count(lambda field: field.has("reasoning", "thinking", "thoughts")),
    "total_tokens": _count(_is_total),
    "ttft": _duration(_is_ttft),
    "tpot": _duration(_is_tpot),
    "queue": _duration(lambda field: field.has("queue", "queued", "queueing", "wait", "waiting",
                                               "pending", "scheduling")),
    "prefill": _duration(lambda field: field.has("prefill") and not _is_length(field)),
    "e2e": _duration(_is_e2e, weak=_may_be_e2e),
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
