"""The conformance kit: the example keeps every law, and each breach is found by its law."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

import pytest

from kvtrace.ingest.contract import Format, Guess, ReadContext, Record, RequestRow
from kvtrace.testing import LAWS, NonconformityError, check_format, read_sample
from tests.plugins.ourgate.ourgate import FORMAT
from tests.plugins.packages import OURGATE

SAMPLES = [OURGATE / "sample.jsonl"]
Made = Callable[[RequestRow, Record, ReadContext], RequestRow | None]


def changed(make: Made) -> Format:
    """The example, with each row made over."""

    def read(records: Iterable[Record], context: ReadContext) -> Iterator[RequestRow]:
        kept: dict[int, Record] = {}

        def remember() -> Iterator[Record]:
            for record in records:
                kept[record.offset] = record
                yield record

        for row in FORMAT.read(remember(), context):
            assert isinstance(row, RequestRow)
            made = make(row, kept[row.offset], context)
            if made is not None:
                yield made

    return replace(FORMAT, read=read)


def with_(row: RequestRow, **fields: object) -> RequestRow:
    for name, value in fields.items():
        setattr(row, name, value)
    return row


def twice(row: RequestRow, record: Record, context: ReadContext) -> RequestRow:
    context.tally.use()
    return row


CALLS = iter(range(1_000_000))


def running(row: RequestRow, record: Record, context: ReadContext) -> RequestRow:
    """A turn that depends on the lines before."""
    context.engine_facts["lines"] = number = int(context.engine_facts.get("lines", 0)) + 1
    return with_(row, output_tokens=number)


def brittle(records: Iterable[Record], context: ReadContext) -> Iterator[RequestRow]:
    """Takes for granted that every line is whole."""
    kept = list(records)
    for record in kept:
        if record.data.startswith(b"{"):
            json.loads(record.data)
    yield from FORMAT.read(kept, context)  # type: ignore[misc]


BROKEN: dict[str, Format] = {
    "recognised": replace(FORMAT, sniff=lambda head: Guess(0.9, "anything")),
    "conserving": changed(twice),
    "typed": changed(lambda row, record, context: with_(row, prompt_tokens=-5)),
    "deterministic": changed(lambda row, record, context: with_(row, output_tokens=next(CALLS))),
    "sturdy": replace(FORMAT, read=brittle),
    "declared": changed(lambda row, record, context: with_(row, e2e_ns=7)),
    "shown": replace(FORMAT, supplies=(*FORMAT.supplies, "ttft_ns")),
    "null_is_not_zero": changed(
        lambda row, record, context: with_(row, cached_tokens=row.cached_tokens or 0)
    ),
    "private": changed(lambda row, record, context: with_(row, llm=record.data.decode()[:80])),
    "order_free": changed(running),
}


def test_the_example_keeps_every_law() -> None:
    check_format(FORMAT, SAMPLES, canaries=["tokens_in"])
    assert len(read_sample(FORMAT, SAMPLES[0]).requests) == 3


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_a_breach_is_found_by_its_law(law: object) -> None:
    [found] = [one for one in LAWS if one is law]
    with pytest.raises(NonconformityError, match=f"ourgate breaks `{found.name}`"):
        found.check(BROKEN[found.name], SAMPLES, canaries=['"tokens_in"', '"ourgate"'])


def test_a_law_needs_a_sample() -> None:
    with pytest.raises(ValueError, match="needs a sample"):
        check_format(FORMAT, [])


def test_lines_that_do_not_stand_alone_are_not_shuffled() -> None:
    check_format(BROKEN["order_free"], SAMPLES, lines_stand_alone=False)
