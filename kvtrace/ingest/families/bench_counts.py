"""Token counts of benchmark clients: the server's where it gave them, else the client's, marked.

A client counts with a tokenizer of its own, without the chat template, so its count and the
server's differ by a few per cent; a share of one in the other may pass 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kvtrace.ingest.contract import ReadContext, RequestRow
from kvtrace.ingest.usage import ASSUMED_FLAG, read_usage

CLIENT_PROMPT_FLAG: Final = "client_prompt_tokens"
"""The prompt was counted by the client; cached tokens of the server are not set against it."""
CLIENT_OUTPUT_FLAG: Final = "client_output_tokens"


def fill_counts(
    row: RequestRow,
    usage: Mapping[str, object] | None,
    *,
    client_prompt: int | None,
    client_output: int | None,
) -> None:
    """Fill the counts of a row from the server's usage object, else from the client's counts.

    Raises:
        msgspec.ValidationError: a count of the usage object is none.
    """
    told = read_usage(usage) if usage else None
    if told is not None:
        row.prompt_tokens, row.output_tokens = told.prompt_tokens, told.output_tokens
        row.flags = (*row.flags, *told.flags)
        if told.prompt_tokens is not None:
            row.cached_tokens = told.cached_tokens
            row.cached_device_tokens = told.cached_device_tokens
            row.cache_write_tokens = told.cache_write_tokens
        if told.is_assumed:
            row.flags = (*row.flags, ASSUMED_FLAG)
    if row.prompt_tokens is None and client_prompt is not None:
        row.prompt_tokens = client_prompt
        row.flags = (*row.flags, CLIENT_PROMPT_FLAG)
    if row.output_tokens is None and client_output is not None:
        row.output_tokens = client_output
        row.flags = (*row.flags, CLIENT_OUTPUT_FLAG)


class CountBook:
    """Remembers whose counts the rows of a file have, to say it once."""

    def __init__(self) -> None:
        self._rows = self._by_client = self._cached = 0

    def saw(self, row: RequestRow) -> None:
        """A row with its flags."""
        self._rows += 1
        self._by_client += CLIENT_PROMPT_FLAG in row.flags or CLIENT_OUTPUT_FLAG in row.flags
        self._cached += row.cached_tokens is not None

    def describe(self, context: ReadContext) -> None:
        """Note whose counts they are, and grade the file by its cached counts."""
        if not self._cached:
            context.evidence_grade = "L"
        if self._by_client:
            context.note(
                "client_token_counts",
                f"Lengths of {self._by_client:,} of {self._rows:,} requests were counted by the"
                " client's tokenizer and may differ from the server's.",
            )
