"""Raw events to rows: three encodings of vLLM and SGLang, and those of the Mooncake master.

Shapes read from the package sources of vLLM 0.9.1 to 0.33, SGLang 0.5.6 to 0.5.23 and the
subscriber guide of the Mooncake store (2025): arrays with the type first, or maps with a `type`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import msgspec
import numpy as np

from kvtrace.ingest.contract import BlockChange, BlockEventRow, Medium, Record
from kvtrace.ingest.formats.kv_events.batches import Batch
from kvtrace.ingest.formats.kv_events.keys import KeyBook, engine_hash
from kvtrace.schema.arrays import IntArray

_FIELDS: Final[Mapping[str, tuple[str, ...]]] = {
    "BlockStored": (
        "block_hashes",
        "parent_block_hash",
        "token_ids",
        "block_size",
        "lora_id",
        "medium",
        "lora_name",
        "extra_keys",
        "group_idx",
    ),
    "BlockRemoved": ("block_hashes", "medium", "group_idx"),
    "AllBlocksCleared": (),
    "BlockStoreEvent": (
        "mooncake_key",
        "replicas",
        "model_name",
        "block_size",
        "block_hash",
        "parent_block_hash",
        "token_ids",
    ),
    "BlockUpdateEvent": ("mooncake_key", "replicas"),
    "RemoveAllEvent": (),
}
"""What the places of an array mean, behind the type; later releases append, never reorder."""
EVENT_TYPES: Final = frozenset(_FIELDS)
_MEDIA: Final[Mapping[str, Medium]] = {
    "GPU": "device",
    "CPU": "host",
    "CPU_PINNED": "host",
    "CPU_TIER1": "host",
    "DISK": "disk",
    "STORAGE": "remote",
    "EXTERNAL": "remote",
}
_MAX_TOKENS: Final = 2**31 - 1


class _Stored(msgspec.Struct, gc=False):
    block_hashes: list[object]
    parent_block_hash: object = None
    token_ids: list[int | list[int]] = []
    block_size: int = 0
    lora_id: int | None = None
    medium: str | None = None
    lora_name: str | None = None
    extra_keys: list[object] | None = None
    group_idx: int | None = None
    cache_salt: str | None = None


class _Removed(msgspec.Struct, gc=False):
    block_hashes: list[object]
    medium: str | None = None
    group_idx: int | None = None


class _Object(msgspec.Struct, gc=False):
    """A block in a Mooncake store: `BlockStoreEvent`, and `BlockUpdateEvent` with less."""

    mooncake_key: str
    replicas: list[object] = []
    model_name: str = ""
    block_size: int = 0
    block_hash: str = ""
    parent_block_hash: str = ""
    token_ids: list[int] = []


class TypedEvent(NamedTuple):
    """One event whose fields have been checked."""

    kind: str
    fields: _Stored | _Removed | _Object | None
    """None for a type without any."""
    tokens: Sequence[IntArray] = ()
    """(blocks,) tokens of stored blocks; empty where they are not given."""


@dataclass(slots=True)
class EventCounts:
    """What the events of a file did not say, or said too often."""

    unknown_parents: int = 0
    """Stored blocks with tokens whose parent was not seen."""
    without_tokens: int = 0
    """Stored blocks that came without token ids and were not known."""
    with_tokens: int = 0
    other_groups: int = 0
    """Events of further cache groups, which repeat the blocks of the first."""
    late_group: bool = False
    """A lower group came after rows of another one."""
    unknown_media: int = 0
    unknown_types: int = 0


@dataclass(slots=True)
class EventReader:
    """Turns the events of one file into rows."""

    book: KeyBook
    counts: EventCounts = field(default_factory=EventCounts)
    _group: int | None = None
    """The lowest cache group seen: the one that counts."""

    def rows(
        self,
        batch: Batch,
        events: Sequence[TypedEvent],
        record: Record,
        instance: str,
        *,
        restarted: bool,
    ) -> list[BlockEventRow]:
        """The rows of one batch with these events of known types."""
        self.counts.unknown_types += len(batch.events) - len(events)
        write = _RowWriter(batch, record, instance)
        if restarted:
            self.book.forget(instance)
            write.add("cleared")
        for event in events:
            self._take(event, write)
        return write.rows

    def _take(self, typed: TypedEvent, write: _RowWriter) -> None:
        event = typed.fields
        if isinstance(event, _Stored | _Removed) and self._is_other_group(event.group_idx):
            self.counts.other_groups += 1
        elif isinstance(event, _Stored):
            self._stored(event, typed.tokens, write)
        elif isinstance(event, _Removed):
            self._removed(event, write)
        elif isinstance(event, _Object):
            self._object(typed.kind, event, write)
        else:
            write.add("cleared")

    def _is_other_group(self, group: int | None) -> bool:
        if group is None or group == self._group:
            return False
        if self._group is not None and group > self._group:
            return True
        self.counts.late_group = self.counts.late_group or self._group is not None
        self._group = group
        return False

    def _key_of(self, instance: str, hashed: int) -> int:
        known = self.book.known(instance, hashed)
        return self.book.of_hash(hashed) if known is None else known

    def _removed(self, event: _Removed, write: _RowWriter) -> None:
        medium = self._medium(event.medium)
        if medium is not None:
            for hashed in map(engine_hash, event.block_hashes):
                write.add("removed", self._key_of(write.instance, hashed), medium=medium)

    def _medium(self, text: str | None) -> Medium | None:
        """Where a block is; releases that do not say it publish HBM only. None: not a known one."""
        if text is None:
            return "device"
        found = _MEDIA.get(text.upper())
        self.counts.unknown_media += found is None
        return found

    def _stored(self, event: _Stored, pieces: Sequence[IntArray], write: _RowWriter) -> None:
        medium = self._medium(event.medium)
        if medium is None:
            return
        adapter = event.lora_name or (None if event.lora_id is None else str(event.lora_id))
        start = self.book.root(adapter, event.cache_salt, topic_llm(write.topic))
        extras = event.extra_keys or []
        parent_hash = event.parent_block_hash
        parent = None if parent_hash is None else engine_hash(parent_hash)
        parent_key = None if parent is None else self.book.known(write.instance, parent)
        is_orphan = parent is not None and parent_key is None
        if parent is not None and parent_key is None:
            parent_key = self.book.of_hash(parent)
        for at, hashed in enumerate(map(engine_hash, event.block_hashes)):
            tokens = pieces[at] if pieces else None
            key = self.book.known(write.instance, hashed)
            if key is None and tokens is not None and not is_orphan:
                extra = extras[at] if at < len(extras) else None
                key = self.book.chained(start if parent_key is None else parent_key, tokens, extra)
                self.counts.with_tokens += 1
            elif key is None:
                key = self.book.of_hash(hashed)
                self.counts.unknown_parents += tokens is not None
                self.counts.without_tokens += tokens is None
            self.book.remember(write.instance, hashed, key)
            size = event.block_size if tokens is None else len(tokens)
            tokens_known = size if 0 < size <= _MAX_TOKENS else None
            write.add(
                "stored", key, parent_key=parent_key, block_tokens=tokens_known, medium=medium
            )
            parent_key, is_orphan = key, False

    def _object(self, kind: str, event: _Object, write: _RowWriter) -> None:
        """A block of a Mooncake store; every place in the store is the pool."""
        hashed = engine_hash(event.mooncake_key)
        if kind == "BlockUpdateEvent":
            if not event.replicas:
                write.add("removed", self._key_of(write.instance, hashed), medium="remote")
            return
        names = [engine_hash(name) for name in (event.block_hash, event.mooncake_key) if name]
        parent = engine_hash(event.parent_block_hash) if event.parent_block_hash else None
        parent_key = None if parent is None else self._key_of(write.instance, parent)
        if event.token_ids:
            start = self.book.root(None, event.model_name)
            key = self.book.chained(start if parent_key is None else parent_key, event.token_ids)
        else:
            key = self.book.of_hash(names[0], event.model_name)
        for name in names:
            self.book.remember(write.instance, name, key)
        size = len(event.token_ids) or None
        write.add("stored", key, parent_key=parent_key, block_tokens=size, medium="remote")


@dataclass(slots=True)
class _RowWriter:
    """Collects the rows of one batch."""

    batch: Batch
    record: Record
    instance: str
    rows: list[BlockEventRow] = field(default_factory=list)

    @property
    def topic(self) -> str:
        return self.batch.topic

    def add(
        self,
        change: BlockChange,
        key: int | None = None,
        *,
        parent_key: int | None = None,
        block_tokens: int | None = None,
        medium: Medium | None = None,
    ) -> None:
        self.rows.append(
            BlockEventRow(
                offset=self.record.offset,
                line=self.record.line,
                observed_at_ns=self.batch.at_ns,
                instance=self.instance,
                sequence=self.batch.number,
                change=change,
                block_key=key,
                parent_key=parent_key,
                block_tokens=block_tokens,
                medium=medium,
            )
        )


def topic_llm(topic: str) -> str | None:
    """The LLM that llm-d puts behind the last `@` of a topic (`kv@pod@llm`); else None."""
    parts = topic.split("@", 2)
    return parts[2] if len(parts) == 3 and parts[2] else None


def event_type(event: object) -> str | None:
    """The type that a raw event calls itself."""
    found = None
    if isinstance(event, list) and event:
        found = event[0]
    elif isinstance(event, dict):
        found = event.get("type")
    return found if isinstance(found, str) else None


def typed_event(event: object) -> TypedEvent | None:
    """A raw event with its checked fields; None if its type is not known.

    Raises:
        msgspec.ValidationError: it has not the fields of its type.
    """
    kind = event_type(event)
    if kind is None:
        raise msgspec.ValidationError("an event has no type")
    names = _FIELDS.get(kind)
    if names is None:
        return None
    if not names:
        return TypedEvent(kind, None)
    values = event if isinstance(event, dict) else dict(_placed(event, names))
    if kind == "BlockStored":
        stored = msgspec.convert(values, _Stored)
        parent = stored.parent_block_hash
        _check_hashes(stored.block_hashes if parent is None else [*stored.block_hashes, parent])
        return TypedEvent(kind, stored, _block_tokens(stored))
    if kind == "BlockRemoved":
        removed = msgspec.convert(values, _Removed)
        _check_hashes(removed.block_hashes)
        return TypedEvent(kind, removed)
    return TypedEvent(kind, _checked_object(msgspec.convert(values, _Object)))


def _check_hashes(hashes: Iterable[object]) -> None:
    for hashed in hashes:
        engine_hash(hashed)


def _checked_object(event: _Object) -> _Object:
    _packed_tokens(event.token_ids)
    engine_hash(event.mooncake_key)
    return event


def _placed(event: object, names: tuple[str, ...]) -> Iterator[tuple[str, object]]:
    if not isinstance(event, list) or len(event) < 2:
        raise msgspec.ValidationError("an event has no fields")
    return zip(names, event[1:], strict=False)


def _block_tokens(event: _Stored) -> list[IntArray]:
    """(blocks,) the tokens of each; empty if they do not fit the blocks, or are not given.

    Speculative decoding by pairs of tokens (EAGLE in SGLang) gives each token as a pair.

    Raises:
        msgspec.ValidationError: a token id does not fit 64 bits.
    """
    size, blocks, tokens = event.block_size, len(event.block_hashes), event.token_ids
    if size <= 0 or not (blocks - 1) * size < len(tokens) <= blocks * size:
        return []
    packed = _packed_tokens(_first_of_pairs(tokens))
    return [packed[start : start + size] for start in range(0, len(tokens), size)]


def _first_of_pairs(tokens: list[int | list[int]]) -> list[int | list[int]] | list[int]:
    if list not in set(map(type, tokens)):
        return tokens
    return [token if isinstance(token, int) else token[0] if token else 0 for token in tokens]


def _packed_tokens(tokens: Sequence[int | list[int]]) -> IntArray:
    try:
        return np.asarray(tokens, dtype="<i8")
    except OverflowError as cause:
        raise msgspec.ValidationError("`token_ids` holds an id outside 64 bits") from cause
