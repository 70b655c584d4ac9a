"""The requests of a dataset with their blocks, straight from its Parquet parts, in plain Python.

Nothing here uses the reuse facts, the SQL of the catalogue or the arrays of the replay.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Final

from kvtrace.schema.manifest import Manifest
from kvtrace.store.dataset import Dataset

_KEYS_PER_FILE: Final = 1 << 44
_COLUMNS: Final = (
    "request_key",
    "is_headline",
    "status",
    "clock",
    "arrived_at_ns",
    "prompt_tokens",
    "output_tokens",
    "cached_tokens",
)


@dataclass(slots=True)
class Request:
    """One headline request."""

    key: int
    status: str
    arrived_at_ns: int | None
    """Null without a clock that can be compared."""
    is_utc: bool
    prompt_tokens: int | None
    output_tokens: int | None
    cached_tokens: int | None
    domain: int | None = None
    runs: list[tuple[int, int]] = field(default_factory=list)
    """Start and length of the runs of block ids, in order."""
    tail_tokens: int = 0

    @property
    def file(self) -> int:
        """Number of its file."""
        return self.key // _KEYS_PER_FILE

    @property
    def block_refs(self) -> int:
        """Blocks of its prompt."""
        return sum(count for _, count in self.runs)

    def ids(self) -> Iterator[int]:
        """Its block ids in order."""
        for start, count in self.runs:
            yield from range(start, start + count)

    def tokens_of(self, blocks: int, block_size: int) -> int:
        """Tokens of its first `blocks` blocks: the last may be partial, none passes the prompt."""
        held = self.block_refs * block_size
        if self.tail_tokens:
            held -= block_size - self.tail_tokens
        if self.prompt_tokens is not None:
            held = min(held, self.prompt_tokens)
        return min(blocks * block_size, held)


def read_requests(dataset: Dataset) -> list[Request]:
    """Headline requests of every status, in key order, with their blocks."""
    rows = dataset.table("requests").select(_COLUMNS).sort("request_key")
    found = {}
    for key, is_headline, status, clock, arrived, prompt, output, cached in rows.iter_rows():
        if is_headline:
            known = None if clock == "order" else arrived
            found[key] = Request(key, status, known, clock == "utc", prompt, output, cached)
    blocks = dataset.table("blocks").sort("request_key", "position")
    wanted = ("request_key", "cache_domain", "start_block", "block_count", "tail_tokens")
    for key, domain, start, count, tail in blocks.select(wanted).iter_rows():
        request = found.get(key)
        if request is not None and count > 0:
            request.domain = domain
            request.runs.append((start, count))
            request.tail_tokens = max(request.tail_tokens, tail)
    return [found[key] for key in sorted(found)]


def block_sizes(manifest: Manifest) -> dict[int, int]:
    """Tokens of a block by cache domain."""
    return {domain.cache_domain: domain.block_size_tokens for domain in manifest.domains}


def by_arrival(requests: Sequence[Request]) -> dict[int, list[Request]]:
    """`ok` requests that have blocks, by cache domain, in order of arrival, then of key.

    One without arrival comes where it stands in its file: after the one before it.
    """
    served = [request for request in requests if request.status == "ok"]
    lowest: dict[int, int] = {}
    for request in served:
        if request.domain is not None:
            file = request.file
            lowest[file] = min(lowest.get(file, request.domain), request.domain)
    members: dict[int, list[Request]] = defaultdict(list)
    for request in served:
        domain = request.domain if request.domain is not None else lowest.get(request.file)
        if domain is not None:
            members[domain].append(request)
    return {domain: _ordered(members[domain]) for domain in sorted(members)}


def _ordered(requests: list[Request]) -> list[Request]:
    known = [one.arrived_at_ns for one in requests if one.arrived_at_ns is not None]
    if not known:
        return [one for one in requests if one.runs]
    places: list[tuple[int, int, Request]] = []
    for _, group in groupby(requests, key=lambda one: one.file):
        of_file = list(group)
        first = next((r.arrived_at_ns for r in of_file if r.arrived_at_ns is not None), min(known))
        last = first
        for one in of_file:
            last = one.arrived_at_ns if one.arrived_at_ns is not None else last
            places.append((last, one.key, one))
    places.sort(key=lambda place: place[:2])
    return [one for _, _, one in places if one.runs]
