"""What the numbers of a vLLM log count, by version: facts and notes that the audit can show."""

from __future__ import annotations

import pytest

from kvtrace.ingest.formats.vllm_text import FORMATS
from kvtrace.ingest.formats.vllm_text.samples import MAX_WAITING
from kvtrace.ingest.formats.vllm_text.version import FEATURES, VersionEvidence
from tests.formats.reading import Reading, read_bytes

VLLM = FORMATS[0]
STATS = (
    "Avg prompt throughput: 10.0 tokens/s, Avg generation throughput: 5.0 tokens/s,"
    " Running: 1 reqs, Waiting: 3 reqs{}, GPU KV cache usage: 1.0%"
)
HITS = STATS.format("") + ", Prefix cache hit rate: 50.0%"
EXTERNAL = HITS + ", External prefix cache hit rate: 5.0%"


def read(*messages: str, version: str | None = None) -> Reading:
    banner = [] if version is None else [f"vLLM API server version {version}"]
    lines = [f"INFO 06-01 12:00:00 [x.py:1] {message}" for message in [*banner, *messages]]
    return read_bytes(VLLM, ("\n".join(lines) + "\n").encode())


def units(reading: Reading) -> list[str | None]:
    return [
        m.hit_unit for s in reading.samples for m in s.metrics if m.metric == "prefix_hit_ratio"
    ]


@pytest.mark.parametrize(
    ("version", "counted", "severity"),
    [("0.11.0", "yes", "warning"), ("0.11.1", "no", None), (None, "unknown", "info")],
)
def test_preemptions_count_as_hits_before_0_11_1(
    version: str | None, counted: str, severity: str | None
) -> None:
    reading = read(HITS, version=version)
    assert reading.context.engine_facts["preemptions_counted_as_hits"] == counted
    found = [n for n in reading.context.notes if n.code == "preemptions_counted_as_hits"]
    assert [note.severity for note in found] == ([] if severity is None else [severity])


def test_nothing_is_said_of_hits_that_are_not_printed() -> None:
    reading = read(STATS.format(""), version="0.10.0")
    assert "preemptions_counted_as_hits" not in reading.context.engine_facts
    assert "preemptions_counted_as_hits" not in reading.note_codes
    assert "last_prompt_position_can_hit" not in reading.context.engine_facts


@pytest.mark.parametrize(
    ("version", "message", "unit"),
    [
        ("0.8.5", HITS, "blocks"),
        ("0.9.1", HITS, "tokens"),
        ("0.6.3", "Prefix cache hit rate: GPU: 33.30%, CPU: 0.00%", "blocks"),
        ("0.9.0", HITS, None),
    ],
)
def test_the_unit_of_hits_is_a_fact(version: str, message: str, unit: str | None) -> None:
    facts = read(message, version=version).context.engine_facts
    assert facts.get("prefix_hit_ratio_counts") == unit
    assert facts["last_prompt_position_can_hit"] == "no"


def test_the_external_ratio_is_of_what_the_device_missed() -> None:
    reading = read(EXTERNAL)
    assert reading.context.engine_facts["external_prefix_hit_ratio_of"] == "prompt_minus_local_hits"
    assert "external_hit_denominator" in reading.note_codes
    assert reading.context.engine_version == ">=0.11.1"
    assert reading.context.engine_facts["preemptions_counted_as_hits"] == "no"
    assert "external_hit_denominator" not in read(HITS).note_codes


@pytest.mark.parametrize(
    ("version", "counted"),
    [
        ("0.15.1", "prompt_tokens"),
        ("0.16.0", None),
        ("0.17.1", "computed_tokens"),
        (None, None),
    ],
)
def test_prompt_throughput_counts_by_version(version: str | None, counted: str | None) -> None:
    facts = read(HITS, version=version).context.engine_facts
    assert facts.get("prompt_tokens_per_s_counts") == counted


def test_waiting_includes_deferred_in_the_newest() -> None:
    deferred = STATS.format(", Deferred: 2 reqs")
    newest = read(deferred, version="0.33.0")
    assert newest.context.engine_facts["waiting_includes_deferred"] == "yes"
    assert "waiting_includes_deferred" in newest.note_codes
    older = read(deferred, version="0.22.0")  # not read: nothing is said
    assert "waiting_includes_deferred" not in older.context.engine_facts
    by_shape = read(
        STATS.format(
            ", Deferred: 2 reqs, KV fetch: 1 waiting to start, 2 in progress, 0 completed waiting"
        )
    )
    assert by_shape.context.engine_facts["waiting_includes_deferred"] == "yes"


def test_preemptions_are_not_shown_where_they_are_reset_before_they_are_printed() -> None:
    assert read(HITS, version="0.12.0").context.engine_facts["preemptions_shown"] == "no"
    assert "preemptions_shown" not in read(HITS, version="0.11.0").context.engine_facts
    shown = read(STATS.format(", Preemptions: 4"), version="0.11.0")
    assert shown.metric("preemptions") == [4.0]


def test_sums_over_engines_and_overlapping_iterations_are_noted() -> None:
    reading = read(f"2 Engines Aggregated: {HITS}")
    assert "engines_aggregated" in reading.note_codes
    assert reading.context.engine_facts["engines"] == 2
    iteration = (
        "Iteration(7): 1 context requests, 40 context tokens, 5 generation requests,"
        " 5 generation tokens, iteration elapsed time: 10.25 ms"
    )
    assert "iteration_times_overlap" in read(iteration).note_codes


def test_an_empty_hit_field_is_no_value() -> None:
    assert read(STATS.format("")).metric("prefix_hit_ratio") == []
    assert read(HITS.replace("50.0%", "nan%")).metric("prefix_hit_ratio") == [None]


def test_a_unit_that_follows_from_a_later_line_holds_for_earlier_ones() -> None:
    assert units(read(HITS, HITS, EXTERNAL)) == ["tokens"] * 3
    # a Received line with `prompt_adapter_request` and no `prompt_embeds` is older than 0.9
    old = (
        "Received request a: prompt: 'x', params: SamplingParams(n=1), prompt_token_ids: None,"
        " lora_request: None, prompt_adapter_request: None."
    )
    assert units(read(HITS, old)) == ["blocks"]
    assert units(read(HITS)) == [None]


def test_what_waits_for_a_unit_is_bounded() -> None:
    reading = read(*[HITS] * (MAX_WAITING + 2), EXTERNAL)
    assert units(reading) == [None] * 2 + ["tokens"] * (MAX_WAITING + 1)


@pytest.mark.parametrize(
    ("seen", "version"),
    [
        (["plain_prefix", "v1_stats"], ">=0.7.0,<0.8.0"),
        (["engine_label", "no_embeds"], ">=0.8.1,<0.9.0"),
        (["finished", "added"], ">=0.4.3,<0.11.0"),
        (["aborted_list", "received_prompt"], ">=0.10.0,<0.11.1"),
        (["response_details"], ">=0.30.0"),
        (["deferred"], ">=0.20.0"),
        (["kv_failures"], ">=0.30.0"),
    ],
)
def test_features_bound_the_version(seen: list[str], version: str) -> None:
    evidence = VersionEvidence()
    for feature in seen:
        evidence.saw(feature)
    reading = read()
    evidence.fill(reading.context)
    assert reading.context.engine_version == version
    assert all(FEATURES[slug][2] in str(reading.context.engine_version_reason) for slug in seen)


def test_contradicting_features_give_no_version() -> None:
    evidence = VersionEvidence()
    evidence.saw("plain_prefix")
    evidence.saw("kv_fetch")
    context = read().context
    evidence.fill(context)
    assert context.engine_version is None
    assert [note.code for note in context.notes] == ["engine_version_unclear"]
