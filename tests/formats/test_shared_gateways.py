"""Gateways and usage objects of the handed excerpts, with the values that their index states."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from kvtrace.ingest.registry import all_formats
from kvtrace.ingest.sniff import recognise
from kvtrace.units import NS_PER_S, NS_PER_US
from tests.formats.reading import Reading, decoded, read_bytes

pytestmark = pytest.mark.shared

FORMAT_OF = {
    "litellm_standard_logging.jsonl": "litellm",
    "litellm_spendlogs_quoted_newlines.csv": "litellm_spend_logs",
    "envoy_ai_gateway_access.jsonl": "envoy_ai_gateway",
    "kong_ai_mixed_versions.jsonl": "kong",
    "higress_ai_log.jsonl": "higress",
    "nginx_vllm_access.jsonl": "nginx_access",
    "langfuse_observations.json": "langfuse",
    "openrouter_generation.jsonl": "openrouter",
    "cloudflare_aig_logs.json": "cloudflare_ai_gateway",
    "openai_batch_output.jsonl": "openai_batch",
    "provider_usage_mixed.jsonl": "provider_usage",
}
"""Excerpt to the format that it must be taken for."""
_COUNTS = ("prompt_tokens", "cached_tokens", "cache_write_tokens", "output_tokens")
_DURATIONS = {"ttft_s": "ttft_ns", "e2e_s": "e2e_ns"}


def read_shared(folder: Path, name: str) -> Reading:
    """The file read through the format that it must be taken for, framed as the pipeline does."""
    data = decoded(folder / "trace_excerpts" / name)
    found = recognise(data, name, formats=all_formats())
    assert found.format is not None
    assert found.format.name == FORMAT_OF[name]
    return read_bytes(dataclasses.replace(found.format, framing=found.framing), data)


def expected_of(folder: Path, name: str) -> Mapping[str, object]:
    expected = json.loads((folder / "trace_excerpts" / "expected.json").read_bytes())[name]
    assert isinstance(expected, dict)
    return expected


def in_ns(seconds: float | None) -> object:
    """Nanoseconds to the microsecond: the excerpts round floats."""
    return None if seconds is None else pytest.approx(seconds * NS_PER_S, abs=NS_PER_US)


@pytest.mark.parametrize("name", FORMAT_OF)
def test_values_of_the_index(name: str, shared_dir: Path) -> None:
    expected, reading = expected_of(shared_dir, name), read_shared(shared_dir, name)
    rows = reading.requests
    assert len(rows) == expected["rows"]
    assert reading.rejected == []
    for column in _COUNTS:
        if column in expected:
            assert [getattr(row, column) for row in rows] == expected[column], column
    for key, column in _DURATIONS.items():
        seconds = expected.get(key, ...)
        if isinstance(seconds, list):
            assert [getattr(row, column) for row in rows] == list(map(in_ns, seconds)), key
        elif seconds is None and key in expected:
            assert [getattr(row, column) for row in rows] == [None] * len(rows), key
    if "status" in expected:
        assert [row.status for row in rows] == expected["status"]
    if "session_id" in expected:
        sessions = expected["session_id"]
        wanted = sessions if isinstance(sessions, list) else [sessions] * len(rows)
        assert [row.session_id for row in rows] == wanted
    if "first_ts_us" in expected:
        assert rows[0].arrived_at_ns == int(str(expected["first_ts_us"])) * NS_PER_US


@pytest.mark.parametrize("name", FORMAT_OF)
def test_clocks_of_the_index(name: str, shared_dir: Path) -> None:
    clock = str(expected_of(shared_dir, name).get("clock", "utc"))
    assert clock.startswith(read_shared(shared_dir, name).context.clock)


def test_end_of_a_web_server_line_becomes_the_start(shared_dir: Path) -> None:
    name = "nginx_vllm_access.jsonl"
    starts = expected_of(shared_dir, name)["start_ts_us"]
    assert isinstance(starts, list)
    reading = read_shared(shared_dir, name)
    assert [row.arrived_at_ns for row in reading.requests] == [us * NS_PER_US for us in starts]
    assert reading.ignored == {"not_an_inference_path": 1}


def test_headers_of_envoy_are_no_first_token(shared_dir: Path) -> None:
    reading = read_shared(shared_dir, "envoy_ai_gateway_access.jsonl")
    assert reading.note_codes == {"cache_semantics_assumed"}
    assert [row.ttft_ns for row in reading.requests] == [None] * 4


def test_observations_that_are_no_generations_are_named(shared_dir: Path) -> None:
    reading = read_shared(shared_dir, "langfuse_observations.json")
    (note,) = reading.context.notes
    assert (note.code, "observation_span (1)" in note.message) == ("entries_left_out", True)


@pytest.mark.parametrize("name", ["dup_ids.jsonl", "epoch_units.jsonl", "iso_zones.jsonl"])
def test_flat_counts_are_no_usage_objects(name: str, shared_dir: Path) -> None:
    data = decoded(shared_dir / "trace_excerpts" / "nasty" / name)
    found = recognise(data, name, formats=all_formats()).format
    assert found is None or found.name not in FORMAT_OF.values()
