"""Our own formats keep the laws that other packages are asked to keep."""

from __future__ import annotations

from collections import defaultdict
from functools import cache

import pytest

from kvtrace.ingest.contract import Format
from kvtrace.ingest.registry import own_formats
from kvtrace.ingest.sniff import recognise
from kvtrace.testing import LAWS, Law
from tests.formats.reading import DATA, decoded

_LARGEST = 60_000
_STATEFUL = {
    *("agentic_mooncake", "bailian", "codex_rollout", "dynamo_request_trace", "lmcache_hashes"),
    *("kv_events", "lmcache_cache_events", "prometheus", "tair_kvcache", "trtllm_kv_events"),
}
"""A line means something only behind those before it: counters, parents, sequences."""
_LEFT_OUT = {
    "shown": "the samples here are pieces, one for each way in which a format is written",
}
CHECKED = [law for law in LAWS if law.name not in _LEFT_OUT]


@cache
def samples() -> dict[str, list[bytes]]:
    """The small fixtures by the format that they are taken for."""
    found = defaultdict(list)
    for path in sorted(one for one in DATA.rglob("*") if one.is_file()):
        data = decoded(path)
        known = recognise(data, path.name, formats=own_formats()).format
        if known is not None and len(data) <= _LARGEST:
            found[known.name].append(data)
    return found


def test_nearly_every_format_has_a_sample() -> None:
    without = {one.name for one in own_formats()} - set(samples())
    assert without <= {"sglang_dump", "openai_batch_input", "vllm_timeseries", "lmcache_trace"}


@pytest.mark.parametrize("law", CHECKED, ids=str)
@pytest.mark.parametrize("entry", own_formats(), ids=lambda entry: entry.name)
def test_a_format_keeps_the_law(entry: Format, law: Law) -> None:
    if law.name == "order_free" and entry.name in _STATEFUL:
        return
    if found := samples().get(entry.name):
        law.check(entry, found)
