"""Findings that rest on what was logged: each fires on a case with its cause, and not without."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from kvtrace.audit.record import Finding
from kvtrace.ingest.formats.vllm_text.startup import EngineFacts
from kvtrace.schema.manifest import Note
from tests.unit.audit_fakes import make_input, make_manifest, query, reuse_queries
from tests.unit.finding_cases import MS, found_by, found_in_rows, value

# --- long prompts in front of short ones --------------------------------------------------------


def served(behind_ms: int, *, pairs: int = 40) -> list[dict[str, Any]]:
    """A long prompt every 2 s, 400 ms to its first token; a short one beside it, one long after.

    The short ones take 50 ms, those beside a long one `behind_ms`, all ± 1 ms.
    """
    rows = []
    for turn in range(pairs):
        shake = turn % 3 - 1
        for at_ms, prompt, ttft_ms in (
            (0, 8000, 400),
            (100, 500, behind_ms + shake),
            (1000, 500, 50 + shake),
        ):
            rows.append(
                {
                    "prompt_tokens": prompt,
                    "arrived_at_ns": (2000 * turn + at_ms) * MS,
                    "ttft_ns": ttft_ms * MS,
                    "ttft_from": "arrival",
                }
            )
    return rows


def test_short_prompts_that_wait_behind_long_ones_are_found() -> None:
    names = ("long_prompts_hurt_short", "latency/behind_long_prompts")
    finding = found_in_rows(*names, requests=served(350))
    assert finding is not None
    assert value(finding, "added_ms") == pytest.approx(300.0)
    assert "one of 8,000 tokens or more waits for its first token take 300 ms longer" in (
        finding.message
    )
    assert finding.table == "latency/behind_long_prompts"


@pytest.mark.parametrize(("behind_ms", "pairs"), [(52, 40), (350, 19)])
def test_short_prompts_that_wait_no_longer_or_are_few_are_no_finding(
    behind_ms: int, pairs: int
) -> None:
    names = ("long_prompts_hurt_short", "latency/behind_long_prompts")
    assert found_in_rows(*names, requests=served(behind_ms, pairs=pairs)) is None


# --- hits that queue ------------------------------------------------------------------------------


def test_hits_that_come_at_busy_times_name_the_queue() -> None:
    def row(cached: int, ttft_ms: int, queue_ms: int, compute_ms: int) -> dict[str, Any]:
        return {
            "prompt_tokens": 1000,
            "cached_tokens": cached,
            "ttft_ns": ttft_ms * MS,
            "ttft_from": "arrival",
            "queue_ns": queue_ms * MS,
            "prefill_ns": compute_ms * MS,
        }

    rows = [row(0, 60, 10, 45)] * 30 + [row(900, 120, 105, 10)] * 30
    finding = found_in_rows("hits_save_compute_lose_time", "latency/hit_price", requests=rows)
    assert finding is not None
    assert finding.title == "Hits queue for longer"
    assert "The queue grew by 95 ms" in finding.message


# --- a tail of bytes ------------------------------------------------------------------------------


def moved_in_tail(*, is_of_bytes: bool) -> Finding | None:
    """400 requests; TTFT is 1 ms for each ten moved tokens, or for each ten prompt tokens."""
    rows = []
    for index in range(400):
        moved, prompt = 10 * (index * 7919 % 397), 4000 + 10 * (index * 7919 % 101)
        ttft_ms = 50 + (moved if is_of_bytes else 4 * (prompt - 4000)) // 10
        rows.append(
            {
                "prompt_tokens": prompt,
                "cached_tokens": moved,
                "cached_remote_tokens": moved,
                "ttft_ns": ttft_ms * MS,
                "ttft_from": "arrival",
                "queue_ns": 5 * MS,
                "prefill_ns": (ttft_ms - 5) * MS,
            }
        )
    return found_in_rows(
        "tail_is_bytes", "latency/tail_causes", "latency/tail_split", requests=rows
    )


def test_a_measured_tail_that_goes_with_moved_tokens_is_made_of_bytes() -> None:
    finding = moved_in_tail(is_of_bytes=True)
    assert finding is not None
    assert (finding.table, finding.action_kind) == ("latency/tail_causes", "move_less")
    assert value(finding, finding.evidence[0].id) > 0.9
    assert moved_in_tail(is_of_bytes=False) is None


# --- tiers below HBM ------------------------------------------------------------------------------


def by_engine(hbm: float, below: float | None) -> Finding | None:
    row = {"third": 0, "engine_prefix_hit_ratio": hbm, "engine_external_hit_ratio": below}
    queries = reuse_queries() | {"latency/hit_and_ttft_thirds": query([row])}
    return found_by(make_input(queries=queries), "lower_tiers_hardly_hit")


def test_a_tier_that_adds_a_hundredth_to_hbm_hardly_hits() -> None:
    # 60 % in HBM, 2.5 % of the other 40 %: one of a hundred tokens.
    assert value(by_engine(0.6, 0.025), "added_hit_ratio") == pytest.approx(0.01)
    assert by_engine(0.6, 0.3) is None
    # Nothing is said of a tier that the engine does not print.
    assert by_engine(0.6, None) is None


def by_tokens(device: int | None, host: int | None) -> Finding | None:
    manifest = make_manifest()
    manifest.totals.cached_tiers = {"device": device, "host": host, "disk": None, "remote": None}
    return found_by(make_input(manifest=manifest), "lower_tiers_hardly_hit")


def test_cached_tokens_by_tier_say_what_the_lower_ones_add() -> None:
    # 20 000 000 prompt tokens.
    assert value(by_tokens(8_000_000, 100_000), "cached_below_tokens") == 100_000
    assert by_tokens(8_000_000, 4_000_000) is None
    assert by_tokens(8_000_000, None) is None
    assert by_tokens(None, 100_000) is None


def written_and_read(read_bytes: int) -> Finding | None:
    moves = [
        {"transfer_key": 1, "direction": "store", "path": "device>host", "moved_bytes": 10**9},
        {"transfer_key": 2, "direction": "load", "path": "host>device", "moved_bytes": read_bytes},
    ]
    return found_in_rows("write_only_tier", "moves/read_and_written", transfers=moves)


def test_a_tier_of_which_a_twentieth_is_read_back_is_write_only() -> None:
    finding = written_and_read(50_000_000)
    assert finding is not None
    assert "1 GB of KV written to host, 50 MB read back (transfers, measured)" in finding.message
    assert (finding.confidence, finding.action_kind) == ("high", "move_less")
    assert written_and_read(200_000_000) is None


def test_a_log_of_stores_alone_does_not_say_that_nothing_is_read() -> None:
    moves = [{"transfer_key": 1, "direction": "store", "path": "device>host", "moved_bytes": 10**9}]
    assert found_in_rows("write_only_tier", "moves/read_and_written", transfers=moves) is None


# --- clocks, gaps, counters -----------------------------------------------------------------------


def noted(code: str) -> Finding | None:
    manifest = make_manifest()
    manifest.files[0].notes.append(Note(code=code, message="3 times have no zone, 5 have one."))
    return found_by(make_input(manifest=manifest), "clock_doubtful")


def test_clocks_that_do_not_agree_are_said() -> None:
    finding = noted("mixed_zones")
    assert finding is not None
    assert finding.message == "3 times have no zone, 5 have one"
    assert noted("block_size_inferred") is None


def slices(*requests: int) -> Finding | None:
    rows = [{"slice_start_ns": at, "requests": held} for at, held in enumerate(requests)]
    queries = reuse_queries() | {"coverage/over_time": query(rows)}
    return found_by(make_input(queries=queries), "coverage_gaps")


def test_an_empty_stretch_between_busy_ones_is_a_gap_of_the_log() -> None:
    assert value(slices(100, 0, 90, 120), "empty_slices") == 1
    assert slices(100, 80, 90, 120) is None
    # A service with quiet hours: an hour of three requests makes one of none plausible.
    assert slices(100, 0, 3, 120) is None


@pytest.mark.parametrize(("known", "is_found"), [(1800, True), (1990, False)])
def test_a_field_that_a_tenth_of_the_requests_lacks_is_a_gap(known: int, is_found: bool) -> None:
    fields = [{"field": "prompt_tokens", "requests": 2000, "known_requests": known}]
    queries = reuse_queries() | {"coverage/fields": query(fields)}
    assert (found_by(make_input(queries=queries), "coverage_gaps") is not None) == is_found


def preempted(facts: Mapping[str, str | int | float], *, most: float) -> Finding | None:
    manifest = make_manifest()
    manifest.sources[0].engine = "vllm"
    manifest.sources[0].engine_version = "0.10.2"
    manifest.sources[0].engine_facts = dict(facts)
    row = {"metric": "preemptions", "maximum": most}
    queries = reuse_queries() | {"samples/catalogue": query([row])}
    return found_by(make_input(manifest=manifest, queries=queries), "preemptions_inflate_hits")


def test_preemptions_inflate_the_hits_of_engines_that_do_not_keep_them_apart() -> None:
    finding = preempted({"preemptions_counted_as_hits": "yes"}, most=4.0)
    assert finding is not None
    assert "preemptions up to 4 at a time, and vllm 0.10.2 counts" in finding.message
    assert preempted({"preemptions_counted_as_hits": "yes"}, most=0.0) is None
    assert preempted({"preemptions_counted_as_hits": "no"}, most=4.0) is None


# --- the drafter of a start-up line ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "method"),
    [
        (
            "Initializing a V1 LLM engine (v0.11.0) with config: model='a/b', "
            "speculative_config=SpeculativeConfig(method='eagle3', model='c/d', "
            "num_spec_tokens=3), tokenizer='a/b'",
            "eagle3",
        ),
        (
            "non-default args: {'model': 'a/b', 'speculative_config': "
            "{'num_speculative_tokens': 2, 'method': 'mtp'}}",
            "mtp",
        ),
        (
            "Initializing a V1 LLM engine (v0.11.0) with config: model='a/b', "
            "speculative_config=None, tokenizer='a/b'",
            None,
        ),
    ],
)
def test_the_drafting_method_of_vllm_is_read_from_its_start_up(line: str, method: str) -> None:
    facts = EngineFacts()
    assert facts.read(line) is not None
    assert facts.facts.get("speculative") == method
