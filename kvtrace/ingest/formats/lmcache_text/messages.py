"""What one LMCache message says: look-ups, stores, loads, copy statistics, start-up.

Lines read from the sources of LMCache 0.3.1, 0.3.7, 0.3.13, 0.4.7 and 0.5.6. A message is read
whole or not at all; request ids, which clients may choose, are cut out from the right.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal
from typing import Final, Literal

from kvtrace.ingest.contract import Metric
from kvtrace.ingest.formats.lmcache_text.sizes import MovedBytes, moved_bytes
from kvtrace.ingest.values.limits import MAX_COUNT
from kvtrace.units import NS_PER_MS, NS_PER_S

Feature = Literal[
    "computed_tokens",
    "no_computed_tokens",
    "pending",
    "negative_load",
    "old_retrieved",
    "new_retrieved",
    "id_in_front",
    "no_id",
    "mp_server",
    "copy_stats",
]
"""Keys of `version.FEATURES`."""


class DamagedMessage(Exception):
    """The message is cut or spliced; the text names what it was, never a value."""


class ImpossibleMessage(Exception):
    """The message is whole, but its numbers contradict each other."""


@dataclass(frozen=True, slots=True)
class Lookup:
    """`Reqid: …`: what the scheduler of the engine asked for and was told."""

    request_id: str
    prompt_tokens: int
    computed_tokens: int | None
    """What the engine holds in HBM; printed from 0.4 on."""
    hit_tokens: int | None
    """None: the look-up is not done; the line comes again."""
    load_tokens: int
    """What is to be loaded; negative if the engine holds more than LMCache (up to 0.3.13)."""
    features: tuple[Feature, ...]


@dataclass(frozen=True, slots=True)
class StoreIntent:
    """`Storing KV cache …`: names the request of a `Stored` line that has no id."""

    request_id: str
    tokens: int
    skipped_tokens: int | None


@dataclass(frozen=True, slots=True)
class Move:
    """`Stored …` or `Retrieved …` of one worker of an engine."""

    direction: Literal["load", "store"]
    request_id: str | None
    tokens: int
    wanted_tokens: int
    total_tokens: int | None
    """Tokens of the request, or of its hit; only loads say it."""
    size: MovedBytes | None
    duration_ns: int | None
    group: str | None
    """KV cache group, where an engine has several."""
    features: tuple[Feature, ...]


@dataclass(frozen=True, slots=True)
class Fetch:
    """`Retrieved n memory objects from …Backend`: where the next load comes from."""

    backend: str
    chunks: int


@dataclass(frozen=True, slots=True)
class Found:
    """A look-up of the multiprocess server, in keys."""

    request_id: str | None
    """Printed from 0.5.4 or so on."""
    found_keys: int
    asked_keys: int | None
    host_keys: int | None
    remote_keys: int | None


@dataclass(frozen=True, slots=True)
class ServerMove:
    """`Stored N tokens in T seconds` of the multiprocess server."""

    direction: Literal["load", "store"]
    tokens: int
    duration_ns: int


@dataclass(frozen=True, slots=True)
class Statistics:
    """A periodic line of the multiprocess server."""

    device: str | None
    metrics: tuple[Metric, ...]
    is_cumulative: bool


@dataclass(frozen=True, slots=True)
class StartUp:
    """An engine was made: its chunk size and its backends."""

    chunk_tokens: int | None = None
    backend: str | None = None
    is_restart: bool = False


Message = Lookup | StoreIntent | Move | Fetch | Found | ServerMove | Statistics | StartUp

_N = r"([0-9]{1,16})"
_D = r"([0-9]{1,9}(?:\.[0-9]{1,9})?)"
_MAX_ID_CHARS: Final = 1_024
_MAX_MESSAGE_CHARS: Final = 4_096
_SOURCE = re.compile(r"\([\w./<>-]{1,200}:[0-9]{1,6}:[\w.<>-]{1,200}\)")
"""`(cache_engine.py:586:lmcache.v1.cache_engine)`, which most builds put behind a message."""
_SOURCE_CHARS: Final = 410

_LOOKUP_REST = re.compile(
    rf"{_N}, (?:Inference Engine computed tokens: {_N}, )?LMCache hit tokens: (?:(None)\.?|{_N}"
    rf",? ?(?:but )?need to load: (-?[0-9]{{1,16}})"
    rf"( < min_retrieve [0-9]{{1,16}}, skip retrieve[\w ]{{0,60}})?\.?)"
)
_STORING = re.compile(
    rf"Storing KV cache for {_N} out of {_N} tokens (?:\(skip_leading_tokens={_N}\) )?for request "
)
_SIZE = rf" size: {_D} (?:gb|GB|GiB), cost {_D} ms, throughput: {_D} GB/s;?"
_PARTS = rf"(?: offload_time: {_D} ms, put_time: {_D} ms;?)?"
_STORED = re.compile(rf"Stored {_N} out of total {_N} tokens\.?(?:{_SIZE}{_PARTS})?")
_RETRIEVED = re.compile(
    rf"Retrieved {_N} out of (?:total )?{_N}"
    rf"(?: required tokens \(from {_N} total tokens\)| out of total {_N} tokens)\.?(?:{_SIZE})?"
)
_FETCHED = re.compile(rf"Retrieved {_N} memory objects from (\w{{1,60}})\.?")
_SERVER_MOVE = re.compile(rf"(Stored|Retrieved) {_N} tokens in {_D} seconds\.?")
_PREFETCH = re.compile(
    rf"Prefetch request completed \(L1\+L2\): {_N}/{_N} (?:retained keys|prefix hits)"
    rf" \({_N} L1, {_N} L2\) in {_D} ms \("
)
_PREFETCH_REST = re.compile(r"prefetch_request_id=-?[0-9]{1,16}\)\.?")
_EXTERNAL: Final = "external_request_id="
_FOUND_REST = re.compile(rf"{_N}")
_SIDE = rf"ops={_N} tokens={_N} size={_D}GB avg_copy=(?:{_D}GB/s|n/a)"
_COPIES = re.compile(
    rf"L0<->L1 stats \[([a-z]{{1,16}}(?::[0-9]{{1,3}})?)\] (?:last {_D}s|(cumulative)):"
    rf" store {_SIDE} \| retrieve {_SIDE}"
)
_L1_USAGE = re.compile(rf"L1 memory usage: {_D}/{_D} GiB \({_D}%\)")
_BACKEND = re.compile(r"Created backend: (\w{1,60}) \(\w{1,60}\)\.?")
_CHUNK = re.compile(r"['\"]chunk_size['\"]: ([0-9]{1,6})[,}]")
_CHUNK_HEAD: Final = 2_000

_STARTS: Final = (
    "Reqid: ",
    "Hybrid lookup: Reqid: ",
    "Storing KV cache for ",
    "Stored ",
    "Retrieved ",
    "[req_id=",
    "Prefetch request completed ",
    "L0<->L1 stats ",
    "L1 memory usage: ",
    "MP lookup/prefetch end: ",
    "Created backend: ",
    "Creating LMCacheEngine ",
)
_TORN = re.compile(r"(?:Stored|Retrieved)(?: [0-9]{1,16}(?: (?!memory objects).{0,4000})?)?", re.S)
_BYTES_PER_GIB: Final = 2**30
_BYTES_PER_GB: Final = 10**9


def is_candidate(text: str) -> bool:
    """Whether the text starts as a message that is read here does."""
    return text.startswith(_STARTS)


def without_source(text: str) -> tuple[str, bool]:
    """(the message, whether the place in LMCache's source stood behind it)."""
    if text.endswith(")"):
        at = text.rfind("(", len(text) - min(len(text), _SOURCE_CHARS))
        if at > 0 and _SOURCE.fullmatch(text, at):
            return text[:at].rstrip(" "), True
    return text, False


def parse_message(text: str) -> Message | None:
    """What a message without source place says; None if it is not one that is read.

    Raises:
        DamagedMessage: it starts as one and is not whole.
        ImpossibleMessage: its numbers cannot be.
    """
    if text.startswith("Creating LMCacheEngine "):
        chunk = _CHUNK.search(text[:_CHUNK_HEAD])
        return StartUp(chunk_tokens=int(chunk[1]) if chunk else None, is_restart=True)
    if len(text) > _MAX_MESSAGE_CHARS:
        raise DamagedMessage("longer than any of its kind")
    if text.startswith(("Reqid: ", "Hybrid lookup: ")):
        return _lookup(text.removeprefix("Hybrid lookup: "))
    if text.startswith("Storing KV cache for "):
        return _intent(text)
    if text.startswith("[req_id="):
        return _named_move(text)
    if text.startswith(("Stored ", "Retrieved ")):
        return _bare_move(text)
    if text.startswith(("Prefetch request completed ", "MP lookup/prefetch end: ")):
        return _found(text)
    if text.startswith(("L0<->L1 stats ", "L1 memory usage: ")):
        return _copies(text) if text.startswith("L0") else _l1_usage(text)
    backend = _BACKEND.fullmatch(text)
    return StartUp(backend=backend[1]) if backend is not None else None


def _count(text: str) -> int:
    value = int(text)
    if value > MAX_COUNT:
        raise ImpossibleMessage("a count past 2^53")
    return value


def _request_id(text: str) -> str:
    if not 0 < len(text) <= _MAX_ID_CHARS:
        raise DamagedMessage("request id")
    return text


def _lookup(text: str) -> Lookup:
    head, found, rest = text.rpartition(", Total tokens ")
    match = _LOOKUP_REST.fullmatch(rest)
    if not found or match is None:
        raise DamagedMessage("look-up")
    total, computed, pending, hit, load, skipped = match.groups()
    features: list[Feature] = ["pending"] if pending else []
    if not pending:
        features.append("no_computed_tokens" if computed is None else "computed_tokens")
    load_tokens = int(load) if load is not None and not skipped else 0
    if load_tokens < 0:
        features.append("negative_load")
    lookup = Lookup(
        request_id=_request_id(head.removeprefix("Reqid: ")),
        prompt_tokens=_count(total),
        computed_tokens=None if computed is None else _count(computed),
        hit_tokens=None if hit is None else _count(hit),
        load_tokens=load_tokens,
        features=tuple(features),
    )
    _check_lookup(lookup)
    return lookup


def _check_lookup(lookup: Lookup) -> None:
    """The parts of a prompt are not longer than the prompt."""
    hit, load = lookup.hit_tokens or 0, lookup.load_tokens
    if max(lookup.computed_tokens or 0, hit) > lookup.prompt_tokens:
        raise ImpossibleMessage("more found than there is")
    if load > hit or hit - load > lookup.prompt_tokens:
        raise ImpossibleMessage("more to load than was found")


def _intent(text: str) -> StoreIntent:
    match = _STORING.match(text)
    if match is None:
        raise DamagedMessage("store")
    tokens, _of, skipped = match.groups()
    request_id = _request_id(text[match.end() :])
    return StoreIntent(request_id, _count(tokens), None if skipped is None else _count(skipped))


def _named_move(text: str) -> Move:
    """`[req_id=ID] Stored …`; the id may hold anything, so the last such bracket ends it."""
    at = max(text.rfind("] Stored "), text.rfind("] Retrieved "))
    if at < 0:
        raise DamagedMessage("move")
    name, found, group = text[len("[req_id=") : at].rpartition(" kv_group=")
    moved = _move(text[at + 2 :], _request_id(name if found else group), group if found else None)
    if moved is None:
        raise DamagedMessage("move")
    return moved


def _bare_move(text: str) -> Message | None:
    fetched = _FETCHED.fullmatch(text)
    if fetched is not None:
        return Fetch(fetched[2], _count(fetched[1]))
    served = _SERVER_MOVE.fullmatch(text)
    if served is not None:
        duration = int(Decimal(served[3]) * NS_PER_S)
        return ServerMove(_direction(served[1]), _count(served[2]), duration)
    moved = _move(text, None, None)
    if moved is None and _TORN.fullmatch(text):
        raise DamagedMessage("move")
    return moved


def _direction(word: str) -> Literal["load", "store"]:
    return "store" if word == "Stored" else "load"


def _move(text: str, request_id: str | None, group: str | None) -> Move | None:
    features: list[Feature] = ["id_in_front" if request_id is not None else "no_id"]
    match = _STORED.fullmatch(text)
    if match is not None:
        tokens, wanted, *size = match.groups()
        total = None
    else:
        match = _RETRIEVED.fullmatch(text)
        if match is None:
            return None
        tokens, wanted, new_total, old_total, *size = match.groups()
        total = _count(new_total or old_total)
        features.append("old_retrieved" if new_total is None else "new_retrieved")
    moved = _count(tokens)
    if moved > max(_count(wanted), total or 0):  # whole chunks are loaded, be it for their end
        raise ImpossibleMessage("more moved than wanted")
    gib, cost_ms, rate = size[:3]
    return Move(
        direction=_direction(text.partition(" ")[0]),
        request_id=request_id,
        tokens=moved,
        wanted_tokens=int(wanted),
        total_tokens=total,
        size=None if gib is None else moved_bytes(moved, gib=gib, cost_ms=cost_ms, gib_per_s=rate),
        duration_ns=None if cost_ms is None else int(Decimal(cost_ms) * NS_PER_MS),
        group=group,
        features=tuple(features),
    )


def _found(text: str) -> Found:
    if text.startswith("MP"):
        name, found, count = text.rpartition(" found_count=")
        if not found or _FOUND_REST.fullmatch(count) is None:
            raise DamagedMessage("look-up")
        session = _request_id(name.removeprefix("MP lookup/prefetch end: session="))
        return Found(session, _count(count), None, None, None)
    match = _PREFETCH.match(text)
    if match is None:
        raise DamagedMessage("prefetch")
    named, _, rest = text[match.end() :].rpartition(", ")
    if _PREFETCH_REST.fullmatch(rest) is None or not (named == "" or named.startswith(_EXTERNAL)):
        raise DamagedMessage("prefetch")
    request_id = _request_id(named.removeprefix(_EXTERNAL)) if named else None
    found_keys, asked, host, remote = map(_count, match.groups()[:4])
    if found_keys > asked or host + remote != found_keys:
        raise ImpossibleMessage("keys of the levels do not add up")
    return Found(request_id, found_keys, asked, host, remote)


def _copies(text: str) -> Statistics:
    match = _COPIES.fullmatch(text)
    if match is None:
        raise DamagedMessage("copy statistics")
    device, seconds, cumulative, *sides = match.groups()
    window_ns = None if cumulative else int(Decimal(seconds) * NS_PER_S)
    metrics: list[Metric] = []
    for verb, rate, (_ops, tokens, size, speed) in (
        ("stored", "store", sides[:4]),
        ("loaded", "load", sides[4:]),
    ):
        values = (
            (f"kv_{verb}_tokens", float(_count(tokens)), "tokens"),
            (f"kv_{verb}_bytes", float(Decimal(size) * _BYTES_PER_GB), "bytes"),
            (
                f"kv_{rate}_bytes_per_s",
                None if speed is None else float(Decimal(speed) * _BYTES_PER_GB),
                "bytes_per_s",
            ),
        )
        metrics += [
            Metric(metric=name, value=value, unit=unit, window="interval", window_ns=window_ns)
            for name, value, unit in values
        ]
    return Statistics(device, tuple(metrics), cumulative is not None)


def _l1_usage(text: str) -> Statistics:
    match = _L1_USAGE.fullmatch(text)
    if match is None:
        raise DamagedMessage("memory usage")
    used, capacity = (float(Decimal(part) * _BYTES_PER_GIB) for part in match.groups()[:2])
    values = (("host_kv_used_bytes", used), ("host_kv_capacity_bytes", capacity))
    metrics = tuple(
        Metric(metric=name, value=value, unit="bytes", window="instant") for name, value in values
    )
    return Statistics(None, metrics, is_cumulative=False)
