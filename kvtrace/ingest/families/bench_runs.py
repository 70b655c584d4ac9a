"""Benchmark runs written as one JSON object of parallel arrays, an entry a request.

`vllm bench serve` and sglang's `bench_serving` share the shape: `input_lens`, `output_lens`,
`ttfts`, `itls`, `errors` and `generated_texts`, in seconds. Generated texts are stepped over while
decoding; the inter-token latencies, most of a file's bytes, are decoded one request at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Final, TypeVar

import msgspec

from kvtrace.ingest.clocks import INT64_MAX
from kvtrace.ingest.contract import Record, RequestRow
from kvtrace.ingest.values.jsonfields import (
    between_ns,
    count_of,
    elapsed_ns,
    mean_per_token_ns,
)
from kvtrace.units import MIB

MAX_RUN_BYTES: Final = 512 * MIB
"""Limit of one run: a hundred thousand requests with their texts and inter-token latencies."""
_NO_ERROR: Final = (b'""', b"null")


class BenchRun(msgspec.Struct, gc=False):
    """The arrays of one run that both programs write."""

    input_lens: list[int] | None = None
    output_lens: list[int | None] | None = None
    ttfts: list[Decimal | None] | None = None
    itls: list[msgspec.Raw] | None = None
    errors: list[msgspec.Raw] | None = None


_ZERO: Final = Decimal(0)
_ITLS: Final = msgspec.json.Decoder(list[Decimal | None], strict=False)
EntryT = TypeVar("EntryT")


def entry(array: Sequence[EntryT] | None, at: int) -> EntryT | None:
    """The entry of request number `at`; None if there is no such array, or it is empty."""
    return array[at] if array else None


def check_lengths(run: BenchRun, **others: Sequence[object] | None) -> int:
    """The number of requests, if every array that is there has an entry for each.

    Raises:
        msgspec.ValidationError: no `input_lens`, or an array of another length.
    """
    if run.input_lens is None:
        raise msgspec.ValidationError("no `input_lens`")
    size = len(run.input_lens)
    arrays: dict[str, Sequence[object] | None] = {
        "output_lens": run.output_lens,
        "ttfts": run.ttfts,
        "itls": run.itls,
        "errors": run.errors,
        **others,
    }
    for name, array in arrays.items():
        if array and len(array) != size:
            raise msgspec.ValidationError(f"`{name}` has another length than `input_lens`")
    return size


def bench_row(
    record: Record, run: BenchRun, at: int, *, latency: Decimal | None, llm: str | None
) -> RequestRow:
    """Request number `at` of a run; a failed one keeps its lengths and has no times.

    Formula: e2e = latency, or ttft + sum of inter-token latencies; tpot = (e2e - ttft) / (output -
    1).

    Raises:
        msgspec.ValidationError: a number is none, or out of range.
    """
    flags: list[str] = []
    error = entry(run.errors, at)
    failed = error is not None and bytes(error) not in _NO_ERROR
    row = RequestRow(
        offset=record.offset,
        line=record.line,
        llm=llm,
        prompt_tokens=count_of("input_lens", entry(run.input_lens, at)),
        output_tokens=count_of("output_lens", entry(run.output_lens, at)),
        status="error" if failed else "ok",
        is_benchmark=True,
    )
    if not failed:
        # 0.0 is what a time holds until it is measured
        row.ttft_ns = elapsed_ns("ttft", entry(run.ttfts, at) or None, flags)
        row.ttft_from = None if row.ttft_ns is None else "client"
        row.e2e_ns = elapsed_ns("e2e", latency or None, flags)
        if row.e2e_ns is None and row.ttft_ns is not None:
            row.e2e_ns = _sum_ns(row.ttft_ns, entry(run.itls, at), flags)
        decode_ns = between_ns(row.ttft_ns, row.e2e_ns, flags)
        row.tpot_ns = mean_per_token_ns(decode_ns, row.output_tokens)
    row.flags = tuple(flags)
    return row


def _sum_ns(ttft_ns: int, listed: msgspec.Raw | None, flags: list[str]) -> int | None:
    """TTFT and all inter-token latencies; None if one of them is unknown, or the sum absurd."""
    if listed is None:
        return None
    parts = _ITLS.decode(listed)
    known = [part for part in parts if part is not None]
    if len(known) < len(parts):
        return None
    try:
        # one sum and one look at the smallest: a run has millions of these
        is_negative, total = min(known, default=_ZERO) < 0, sum(known, _ZERO)
    except ArithmeticError:  # a number only in name, such as "sNaN"
        raise msgspec.ValidationError("`itls` holds something that is no duration") from None
    if is_negative:
        flags.append("negative_itl")
        return None
    tail_ns = elapsed_ns("itls", total, flags)
    if tail_ns is None or ttft_ns + tail_ns > INT64_MAX:
        return None
    return ttft_ns + tail_ns
