"""Requests of mapped records: the values of one record become one row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from kvtrace.ingest.contract import ReadContext, Record, RequestRow
from kvtrace.ingest.mapping.blocks import HashedBlocks, TokenBlocks
from kvtrace.ingest.mapping.clock import ClockChoice, MappedClock
from kvtrace.ingest.mapping.meanings import Counted, is_yes, status_of, text_seconds
from kvtrace.ingest.mapping.spec import (
    DurationSpec,
    FieldRef,
    InstantSpec,
    SourceSpec,
    TimeSpec,
)
from kvtrace.ingest.mapping.values import Places
from kvtrace.ingest.prompts import PromptBlocks, PromptHasher
from kvtrace.ingest.usage import TokenUsage, parsed_count, read_usage
from kvtrace.ingest.values.jsonfields import Ignored, between_ns, count_of, elapsed_ns, flag_lengths
from kvtrace.ingest.values.rawvalues import decimal_of

LEFT_OUT: Final = "left_out_by_where"
NO_VALUE: Final = "no_mapped_field"
NO_START_FLAG: Final = "start_unknown"
LONG_PART_FLAG: Final = "part_above_e2e"
_PARTS: Final = ("queue_ns", "prefill_ns", "tpot_ns")
"""Durations inside a request, beside `ttft_ns`, of which a flag of its own tells."""
_ABSENT: Final = ("", "-", "null")
_USAGE: Final = msgspec.json.Decoder(dict[str, object])
_NS_DURATIONS: Final = {"queue": "queue_ns", "prefill": "prefill_ns", "ttft": "ttft_ns",
                        "tpot": "tpot_ns", "e2e": "e2e_ns"}  # fmt: skip
_TIERS: Final = ("cached_device_tokens", "cached_host_tokens", "cached_disk_tokens",
                 "cached_remote_tokens", "computed_tokens")  # fmt: skip
_NOT_JSON: Final = msgspec.DecodeError("invalid JSON")
_SHORT_COUNT: Final = 16
"""Digits of any whole number that is below the limit of counts without a look."""
_MAX_NAME_CHARS: Final = 200
"""Of what is kept in the clear: longer values are no names."""


@dataclass(frozen=True, slots=True)
class Clocks:
    """What the instants of a file are."""

    time: ClockChoice | None = None
    first_token_at: ClockChoice | None = None
    finished_at: ClockChoice | None = None


class MappedRows:
    """The rows of one file, and what was seen on the way."""

    def __init__(
        self,
        source: SourceSpec,
        context: ReadContext,
        *,
        clocks: Clocks,
    ) -> None:
        self._source = source
        self.is_inclusive = True
        """Whether prompt counts include the cached tokens."""
        slots = {ref: slot for slot, ref in enumerate(source.refs())}
        self._slots = {id(ref): slots[ref] for ref in source.all_refs()}
        """By identity: hashing a field for every value takes longer than reading it."""
        self._values: Sequence[str | None] = ()
        self._texts: list[str | None] = []
        """The values without blanks around them; None where unknown."""
        self._tiers = [name for name in _TIERS if name in source.counts]
        self._hasher = context.prompt_hasher
        if source.time is not None and source.time.zone is not None:
            context.tz = source.time.zone
        self._time = _clock(source.time, clocks.time, context)
        self._first = _clock(source.first_token_at, clocks.first_token_at, context)
        self._end = _clock(source.finished_at, clocks.finished_at, context)
        hashed, tokens = source.block_hashes, source.token_ids
        self.hashed = None if hashed is None else HashedBlocks(hashed, context)
        self.tokens = None if tokens is None else TokenBlocks(tokens, context)
        self.records = 0
        self.seen = [0] * len(slots)
        """Records in which each field has a value."""
        self.rows = self.unknown_status = self.no_start = self.slow_first = self.both_times = 0
        self.assumed: dict[tuple[str, bool], int] = {}
        """Rows whose usage object does not settle what it counts, by shape and reading."""
        self.cached_above = 0
        self.refused: dict[str, int] = {}
        """Elements of lists that cannot be used, by cause."""
        self.left_out: dict[str, int] = {}
        """Elements of lists that are no requests, by reason."""

    @property
    def clock(self) -> MappedClock | None:
        """Of the arrivals."""
        return self._time

    def row(self, record: Record, values: Sequence[str | None]) -> RequestRow | Ignored:
        """The request of one record.

        Raises:
            msgspec.ValidationError: a value is not what its field says; the field is named.
        """
        self._take(values)
        self.records += 1
        known = False
        for slot, text in enumerate(self._texts):
            if text is not None:
                self.seen[slot] += 1
                known = True
        for ref, wanted in self._source.where:
            if (self._text(ref) or "").lower() not in wanted:
                return Ignored(LEFT_OUT)
        if not known:
            return Ignored(NO_VALUE)
        row = self._built(record)
        self.rows += 1
        return row

    def only(self, record: Record, values: Sequence[str | None]) -> list[RequestRow] | Ignored:
        """The row of a record that is one request.

        Raises:
            msgspec.ValidationError: a value is not what its field says; the field is named.
        """
        made = self.row(record, values)
        return made if isinstance(made, Ignored) else [made]

    def of_list(
        self, record: Record, elements: Sequence[bytes], places: Places
    ) -> list[RequestRow] | Ignored:
        """The rows of a record that holds a list of requests; others of its elements are counted.

        Raises:
            msgspec.DecodeError: not one of the elements can be used.
        """
        made: list[RequestRow] = []
        refused: msgspec.DecodeError | None = None
        left_out = NO_VALUE
        for element in elements:
            try:
                one = self.row(record, places.json_values(element))
            except (msgspec.DecodeError, UnicodeError, RecursionError) as bad:
                refused = bad if isinstance(bad, msgspec.DecodeError) else _NOT_JSON
                cause = str(bad) if isinstance(bad, msgspec.ValidationError) else "invalid JSON"
                self.refused[cause] = self.refused.get(cause, 0) + 1
                continue
            if isinstance(one, Ignored):
                left_out = one.reason
                self.left_out[left_out] = self.left_out.get(left_out, 0) + 1
            else:
                made.append(one)
        if not made and refused is not None:
            raise refused
        return made or Ignored(left_out)

    def _take(self, values: Sequence[str | None]) -> None:
        self._values, absent = values, self._source.absent
        texts = [None if value is None else value.strip() for value in values]
        self._texts = [
            None if text in _ABSENT or (absent and (text or "").lower() in absent) else text
            for text in texts
        ]

    def _text(self, ref: FieldRef | None) -> str | None:
        return None if ref is None else self._texts[self._slots[id(ref)]]

    def _built(self, record: Record) -> RequestRow:
        source, flags = self._source, list[str]()
        row = RequestRow(offset=record.offset, line=record.line, is_benchmark=source.is_benchmark)
        for column, ref in source.texts.items():
            text = self._text(ref)
            if text is not None and (column.endswith(("_id", "tenant", "user")) or _is_name(text)):
                setattr(row, column, text)
        self._set_turn(row)
        self._set_status(row)
        self._set_times(row, flags)
        self._set_tokens(row, flags)
        self._set_blocks(row, flags)
        row.flags = tuple(flags)
        flag_lengths(row)
        self.cached_above += "cached_above_prompt" in row.flags
        return row

    def _set_turn(self, row: RequestRow) -> None:
        turn = self._source.turn
        text = None if turn is None else self._text(turn.ref)
        if turn is None or text is None:
            return
        number = parsed_count(turn.ref.said, text)
        if number is None or not turn.first <= number < (1 << 31):
            raise msgspec.ValidationError(f"`{turn.ref.said}` is not the number of a turn")
        row.turn = number - turn.first

    def _set_status(self, row: RequestRow) -> None:
        source = self._source
        text = None if source.status is None else self._text(source.status.ref)
        if source.status is not None and text is not None:
            status = status_of(source.status, text)
            self.unknown_status += status is None
            row.status = status or "ok"
        if row.status == "ok" and is_yes(self._text(source.failed)):
            row.status = "error"
        if is_yes(self._text(source.gateway_cache_hit)):
            row.status = "gateway_cache_hit"

    def _duration(self, name: str, spec: DurationSpec, flags: list[str]) -> int | None:
        text = self._text(spec.ref)
        if text is None:
            return None
        if spec.power is None:
            number, power = text_seconds(spec.ref.said, text), 0
        else:
            number, power = decimal_of(spec.ref.said, text), spec.power
        if number < 0:
            flags.append(f"negative_{name}")
            return None
        return elapsed_ns(spec.ref.said, number, flags, power=power)

    def _set_times(self, row: RequestRow, flags: list[str]) -> None:
        source = self._source
        for name, spec in source.durations.items():
            setattr(row, _NS_DURATIONS[name], self._duration(name, spec, flags))
        if source.time is not None and self._time is not None:
            self._set_instants(row, flags)
        if row.ttft_ns is not None:
            row.ttft_from = source.ttft_from
            if row.e2e_ns is not None:
                self.both_times += 1
                if row.ttft_ns > row.e2e_ns:
                    self.slow_first += 1
                    flags.append("ttft_above_e2e")
        _take_out_long_parts(row, flags)

    def _set_instants(self, row: RequestRow, flags: list[str]) -> None:
        source = self._source
        if source.time is None or self._time is None:
            return
        stated = self._time.ns(self._text(source.time.ref), flags)
        start = stated
        if source.time.is_end and stated is not None:
            start = None if row.e2e_ns is None else stated - row.e2e_ns
            if start is None:
                self.no_start += 1
                flags.append(NO_START_FLAG)
        row.arrived_at_ns = start
        if source.first_token_at is not None and self._first is not None:
            first = self._first.ns(self._text(source.first_token_at.ref), flags)
            row.ttft_ns = between_ns(start, first, flags)
        if source.finished_at is not None and self._end is not None:
            end = self._end.ns(self._text(source.finished_at.ref), flags)
            row.e2e_ns = between_ns(start, end, flags)

    def _count(self, name: str) -> int | None:
        ref = self._source.counts.get(name)
        if ref is None:
            return None
        text = self._texts[self._slots[id(ref)]]
        if text is None:
            return None
        if text.isdigit() and text.isascii() and len(text) < _SHORT_COUNT:
            return int(text)
        return parsed_count(ref.said, text)

    def counted(self, values: Sequence[str | None]) -> Counted:
        """The counts of a record as they stand.

        Raises:
            msgspec.ValidationError: one is no count.
        """
        self._take(values)
        return self._counted()

    def _counted(self) -> Counted:
        return Counted(
            self._count("prompt_tokens"),
            self._count("cached_tokens"),
            self._count("cache_write_tokens"),
            self._count("output_tokens"),
            self._count("total_tokens"),
        )

    def counted_or_none(self, values: Sequence[str | None]) -> Counted | None:
        """The counts of a record, None if one of them is no count."""
        try:
            return self.counted(values)
        except msgspec.ValidationError:
            return None

    def _set_tokens(self, row: RequestRow, flags: list[str]) -> None:
        for name in self._tiers:
            setattr(row, name, self._count(name))
        usage = self._usage()
        if usage is not None:
            row.prompt_tokens, row.output_tokens = usage.prompt_tokens, usage.output_tokens
            row.cached_tokens, row.cache_write_tokens = (
                usage.cached_tokens,
                usage.cache_write_tokens,
            )
            if row.cached_device_tokens is None:
                row.cached_device_tokens = usage.cached_device_tokens
            flags.extend(usage.flags)
            if usage.is_assumed:
                key = (usage.shape, bool(usage.is_inclusive))
                self.assumed[key] = self.assumed.get(key, 0) + 1
        else:
            self._set_counts(row)
        if row.status == "gateway_cache_hit":  # the gateway answered: no KV cache was asked
            row.cached_tokens = row.cache_write_tokens = row.computed_tokens = None
            for name in _TIERS:
                setattr(row, name, None)

    def _usage(self) -> TokenUsage | None:
        ref = self._source.usage
        text = self._text(ref)
        if ref is None or text is None:
            return None
        try:
            held = _USAGE.decode(text)
        except (msgspec.DecodeError, UnicodeError, RecursionError) as bad:
            raise msgspec.ValidationError(f"`{ref.said}` is not a usage object") from bad
        return read_usage(held)

    def _set_counts(self, row: RequestRow) -> None:
        one = self._counted()
        row.cached_tokens, row.cache_write_tokens = one.cached, one.written
        prompt, output = one.prompt, one.output
        if prompt is not None and not self.is_inclusive:
            prompt = count_of("prompt_tokens", prompt + one.held)
        if prompt is None and row.computed_tokens is not None and one.cached is not None:
            prompt = count_of("prompt_tokens", row.computed_tokens + one.cached)
        reasoning = self._count("reasoning_tokens")
        if reasoning is not None and not self._source.output_includes_reasoning:
            output = count_of("output_tokens", (output or 0) + reasoning)
        row.prompt_tokens, row.output_tokens = prompt, output

    def _set_blocks(self, row: RequestRow, flags: list[str]) -> None:
        source = self._source
        if source.block_hashes is not None and self.hashed is not None:
            text = self._text(source.block_hashes.ref)
            if text is not None:
                row.block_keys = self.hashed.keys(text, row.prompt_tokens, flags)
        if source.token_ids is not None and self.tokens is not None:
            text = self._text(source.token_ids.ref)
            if text is not None:
                row.block_keys, length = self.tokens.keys(text, row.adapter)
                if row.prompt_tokens is None:
                    row.prompt_tokens = length
                elif length != row.prompt_tokens:
                    flags.append("token_count_mismatch")
        if source.prompt is not None:
            self._set_prompt(row, source.prompt, flags)

    def _set_prompt(self, row: RequestRow, ref: FieldRef, flags: list[str]) -> None:
        text = self._values[self._slots[id(ref)]]
        if text is None or self._hasher is None or self._text(ref) is None:
            return
        made = hashed_prompt(self._hasher, text, row.adapter)
        if row.prompt_tokens is not None:
            row.block_keys = made.keys_for(row.prompt_tokens)
            return
        row.block_keys, row.prompt_tokens = made.keys, made.tokens
        flags.extend(made.flags)


def _take_out_long_parts(row: RequestRow, flags: list[str]) -> None:
    """Parts of a request that are longer than all of it are unknown, whatever their unit may be."""
    whole = row.e2e_ns
    for name in _PARTS:
        part = getattr(row, name)
        if whole is not None and part is not None and part > whole:
            setattr(row, name, None)
            flags.extend([] if LONG_PART_FLAG in flags else [LONG_PART_FLAG])


def _is_name(text: str) -> bool:
    return len(text) <= _MAX_NAME_CHARS and text.isprintable()


def _clock(
    spec: TimeSpec | InstantSpec | None, choice: ClockChoice | None, context: ReadContext
) -> MappedClock | None:
    if spec is None or choice is None:
        return None
    return MappedClock(spec.ref, choice, context)


def hashed_prompt(hasher: PromptHasher, text: str, adapter: str | None) -> PromptBlocks:
    """The blocks of a prompt: a JSON list of chat messages, or text."""
    if text.lstrip()[:1] == "[":
        try:
            return hasher.messages(text.encode("utf-8", "surrogatepass"), adapter=adapter)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            pass  # a text that begins with a bracket
    return hasher.text(text, adapter=adapter)
