"""What the readers of gateway records share: outcomes, paths, tokens of a row, notes of a file."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

import msgspec

from kvtrace.ingest.contract import ReadContext, Record, RequestRow
from kvtrace.ingest.prompts.bodies import BodyReader
from kvtrace.ingest.prompts.rows import Prompted, note_few_prompts, prompted_rows, with_blocks
from kvtrace.ingest.usage import ASSUMED_FLAG, TokenUsage, parsed_count
from kvtrace.ingest.values.instants import Instants
from kvtrace.ingest.values.jsonfields import Ignored, flag_lengths
from kvtrace.ingest.values.rawvalues import raw_text
from kvtrace.schema.manifest import Status

NOT_INFERENCE: Final = "not_an_inference_path"
_CLIENT_GONE: Final = (0, 499)
_FIRST_ERROR: Final = 400
_ENDPOINTS: Final = re.compile(
    r"/(chat/completions|completions|responses|messages|embeddings|rerank|score|classify|pooling"
    r"|generate|generate_stream|invoke|invoke-with-response-stream|converse|converse-stream|infer"
    r"|api/chat|api/generate|audio/transcriptions|images/generations)/?\Z"
    r"|:(generateContent|streamGenerateContent|embedContent|predict|rawPredict|streamRawPredict)\Z"
)


def status_of_code(code: int | None) -> Status:
    """The outcome behind an HTTP status; 0 and 499 are clients that went away."""
    if code is None:
        return "ok"
    if code in _CLIENT_GONE:
        return "cancelled"
    return "error" if code >= _FIRST_ERROR else "ok"


def endpoint_of(path: str) -> str | None:
    """The kind of inference behind a request path, such as `chat/completions`; None if it is none.

    What stands before it (prefixes of the operator, names of deployments) is dropped.
    """
    found = _ENDPOINTS.search(path.partition("?")[0])
    return None if found is None else found[1] or found[2]


def status_in(name: str, value: msgspec.Raw) -> int | None:
    """The HTTP status of a field, a number or its text.

    Raises:
        msgspec.ValidationError: it is neither.
    """
    return parsed_count(name, raw_text(value))


def _is_empty(status: Status, usage: TokenUsage) -> bool:
    """Whether a failed request counted nothing, which gateways write as zeros."""
    return status in ("error", "cancelled") and not usage.prompt_tokens and not usage.output_tokens


class GatewayFile:
    """The rows of one file: clock, what token counts mean, prompts, and the notes on all that."""

    def __init__(self, context: ReadContext) -> None:
        self.context = context
        self.instants = Instants(context)
        self.bodies = BodyReader(context)
        self._assumed: dict[tuple[str, bool], int] = {}
        self._knows_cached = False
        self._rows = self._rows_with_blocks = 0

    def prompted_rows(
        self, records: Iterable[Record], parse: Callable[[Record], Sequence[Prompted] | Ignored]
    ) -> Iterator[RequestRow]:
        """The rows of all records, with the block keys of their prompts."""
        return self._watched(prompted_rows(records, self.context, parse))

    def with_blocks(self, rows: Iterable[Prompted]) -> Iterator[RequestRow]:
        """The rows, with the block keys of their prompts."""
        hasher = self.context.prompt_hasher
        yield from self._watched(with_blocks(rows, hasher))
        if hasher is not None:
            hasher.describe(self.context)

    def _watched(self, rows: Iterable[RequestRow]) -> Iterator[RequestRow]:
        for row in rows:
            self._rows += 1
            self._rows_with_blocks += row.block_keys is not None
            yield row

    def fill(self, row: RequestRow, usage: TokenUsage | None, flags: list[str]) -> RequestRow:
        """The row with its tokens and flags.

        A response from the gateway's own cache used no KV: its cached tokens are those of the call
        that filled the cache, and are left out. Zeros of a request that failed are no counts.
        """
        if usage is not None and not _is_empty(row.status, usage):
            self._fill_tokens(row, usage, flags)
            flags.extend(flag for flag in usage.flags if flag not in flags)
        if row.ttft_ns is not None:
            row.ttft_from = "arrival"
            if row.e2e_ns is not None and row.ttft_ns > row.e2e_ns:
                flags.append("ttft_above_e2e")
        row.flags = tuple(flags)
        flag_lengths(row)
        return row

    def _fill_tokens(self, row: RequestRow, usage: TokenUsage, flags: list[str]) -> None:
        row.prompt_tokens, row.output_tokens = usage.prompt_tokens, usage.output_tokens
        if usage.is_open:  # the names of a convention prove nothing where operators choose them
            key = (usage.shape, bool(usage.is_inclusive))
            self._assumed[key] = self._assumed.get(key, 0) + 1
            if usage.is_assumed:
                flags.append(ASSUMED_FLAG)
        if row.status == "gateway_cache_hit":
            return
        row.cached_tokens, row.cache_write_tokens = usage.cached_tokens, usage.cache_write_tokens
        row.cached_device_tokens = usage.cached_device_tokens
        self._knows_cached = self._knows_cached or usage.cached_tokens is not None

    def finish(self, time_field: str, *, naive_is_utc_because: str | None = None) -> None:
        """Clock, grade and notes of the file; `time_field` gives the arrival."""
        self.instants.finish(time_field, naive_is_utc_because=naive_is_utc_because)
        self.bodies.describe()
        self._grade()
        if self._assumed:
            self.context.note("cache_semantics_assumed", self._assumption(), severity="warning")

    def _grade(self) -> None:
        """Blocks of most requests, else cached counts, else lengths. Few blocks prove nothing."""
        context = self.context
        if 2 * self._rows_with_blocks > self._rows:
            context.evidence_grade = "A"
            return
        if self._rows_with_blocks:
            note_few_prompts(context, self._rows_with_blocks, self._rows)
        context.evidence_grade = "B" if self._knows_cached else "L"

    def _assumption(self) -> str:
        parts = [
            f"{shape} as {'including it' if is_inclusive else 'leaving it out'} ({count:,})"
            for (shape, is_inclusive), count in sorted(self._assumed.items())
        ]
        return (
            "Nothing in some rows settles whether the prompt count includes the cached tokens; it"
            f" is read the usual way of its names: {', '.join(parts)}."
        )
