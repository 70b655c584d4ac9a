"""The words that names of fields are made of, in one spelling each."""

from __future__ import annotations

import re
from functools import cache
from typing import Final

_CAMEL: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_SPLIT: Final = re.compile(r"[^a-z0-9]+")
UNITS: Final = frozenset({"s", "sec", "secs", "seconds", "ms", "msec", "msecs", "millis",
                          "milliseconds", "us", "usec", "usecs", "micros", "microseconds", "ns",
                          "nsec", "nanos", "nanoseconds", "in", "epoch", "unix"})  # fmt: skip
_ALIASES: Final[dict[str, tuple[str, ...]]] = {
    "arr": ("arrival",), "arrive": ("arrival",), "beg": ("begin",), "began": ("started",),
    "cnt": ("count",), "compl": ("completion",), "comp": ("completion",), "conv": ("conversation",),
    "convo": ("conversation",), "convid": ("conversation", "id"), "ctx": ("context",),
    "cust": ("customer",), "deploy": ("deployment",), "dialogue": ("dialog",), "dur": ("duration",),
    "fin": ("finished",), "gen": ("generated",), "inp": ("input",), "lat": ("latency",),
    "mdl": ("model",), "n": ("num",), "nb": ("num",), "outp": ("output",), "prev": ("previous",),
    "processed": ("processing",), "recv": ("received",), "replies": ("reply",),
    "req": ("request",), "resp": ("response",), "reuse": ("reused",), "rq": ("request",),
    "rid": ("request", "id", "rid"), "rsp": ("response",), "rt": ("response", "time"),
    "rtt": ("response", "time"), "sess": ("session",), "sid": ("session", "id"),
    "stat": ("status",), "submitted": ("submit",), "t0": ("start", "time"),
    "t1": ("end", "time"), "tkn": ("token",), "tkns": ("tokens",), "tok": ("tokens",),
    "toks": ("tokens",), "uid": ("user", "id"), "usr": ("user",),
}  # fmt: skip
"""Short and glued spellings → words."""
_GLUED: Final = frozenset({
    "account", "arrival", "at", "begin", "block", "blocks", "cache", "cached", "call",
    "chat", "client", "completed", "completion", "context", "conversation", "count",
    "created", "creation", "customer", "date", "decode", "dialog", "done", "duration",
    "e2e", "elapsed", "end", "ended", "finish", "finished", "first", "gen", "generated",
    "hash", "hashes", "hit", "hits", "id", "input", "key", "latency", "len", "length",
    "model", "name", "num", "out", "output", "parent", "prefill", "prefix", "previous",
    "prompt", "queue", "queued", "read", "reasoning", "received", "request", "response",
    "reused", "session", "size", "start", "started", "status", "submitted", "team",
    "tenant", "thread", "time", "timestamp", "to", "tok", "token", "tokens", "toks",
    "total", "tpot", "ttft", "turn", "user", "uuid", "wait", "waiting", "write",
    "written", "ms", "ns", "us", "sec", "secs", "seconds", "millis",
})  # fmt: skip
"""Words that names without separators are cut into: `sessionid`, `prompttokens`."""
_SHORTEST_GLUED: Final = 5
_SHORTEST_PART: Final = 2


def words_of(key: str) -> frozenset[str]:
    """The words of a name in lower case: `promptTokens_cached` has prompt, tokens and cached."""
    found: set[str] = set()
    for word in _SPLIT.split(_CAMEL.sub("_", key).lower().replace("gen_ai", "genai")):
        if word:
            found.update(_spelled(word))
    return frozenset(found)


@cache
def _spelled(word: str) -> tuple[str, ...]:
    """The words behind one written word."""
    if word in _ALIASES:
        return _ALIASES[word]
    parts = _cut(word) if len(word) >= _SHORTEST_GLUED and word not in _GLUED else None
    return (word,) if parts is None else tuple(w for part in parts for w in _spelled(part))


def _cut(word: str) -> tuple[str, ...] | None:
    """The known words that a word is glued of, the longest first; None if it is not."""
    if not word:
        return ()
    for length in range(len(word), _SHORTEST_PART - 1, -1):
        if word[:length] in _GLUED and (rest := _cut(word[length:])) is not None:
            return (word[:length], *rest)
    return None
