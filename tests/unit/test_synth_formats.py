"""Every writer's file is recognised, read without loss, and gives back the numbers of the story."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from pathlib import Path

import polars as pl
import pytest

from kvtrace.ingest.hashing import KeyedHasher
from kvtrace.ingest.pipeline import Ingested, ingest_paths
from kvtrace.ingest.registry import all_formats
from kvtrace.ingest.sniff import recognise
from kvtrace.synth import (
    FORMATS,
    WRITERS,
    Loaded,
    Order,
    Profile,
    Scene,
    Served,
    Spread,
    Story,
    StoryEngine,
    Workload,
    Writer,
    write_story,
)
from kvtrace.synth.formats.scene import START_NS, hashed

SALT = b"s" * 32
SECOND, MS = 1_000_000_000, 1_000_000
# A small HBM, so that blocks are evicted, pulled from the pool and stored again.
ENGINE = StoryEngine(kv_capacity_tokens=16_384)
PROFILE = Profile(
    seed=5,
    block_size_tokens=64,
    workloads=(
        Workload(
            name="chat",
            start_s=0.0,
            duration_s=300.0,
            sessions=40,
            arrivals="poisson",
            turns_mean=2.5,
            turns_max=6,
            shared_roots=2,
            root_tokens=Spread(median=700, sigma=0.2, low=300, high=1200),
            first_tokens=Spread(median=900, sigma=0.6, low=50, high=4000),
            turn_tokens=Spread(median=300, sigma=0.6, low=20, high=2000),
            output_tokens=Spread(median=60, sigma=0.6, low=1, high=300),
            think_s=Spread(median=15, sigma=0.5, low=3, high=60),
            context_max_tokens=8000,
        ),
    ),
)
SCENE = Scene(Story(PROFILE, ENGINE))


@pytest.fixture(scope="module")
def served() -> list[Served]:
    told = list(SCENE.served())
    assert len(told) > 60
    # The story has what the formats are to carry: hits in both places, misses, evictions, queues.
    assert any(one.pulled_tokens for one in told)
    assert any(one.device_tokens for one in told)
    assert any(one.evicted for one in told)
    assert any(one.scheduled_at_ns > one.queued_at_ns for one in told)
    return told


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder a format, with its files."""
    root = tmp_path_factory.mktemp("story")
    for name in FORMATS:
        paths = write_story(root / name, Loaded(PROFILE, ENGINE, None), Order((name,)))
        assert [path.name for path in paths] == [w.file for w in WRITERS if w.format == name]
    return root


def read(*paths: Path) -> Ingested:
    return ingest_paths(list(paths), salt=SALT)


@pytest.mark.parametrize("writer", WRITERS, ids=lambda writer: writer.file)
def test_the_registry_recognises_the_file(folder: Path, writer: Writer) -> None:
    data = (folder / writer.format / writer.file).read_bytes()[:65_536]
    found = recognise(data, writer.file, formats=all_formats())
    assert found.format is not None
    assert found.format.name == writer.format


@pytest.mark.parametrize("name", FORMATS)
def test_no_record_is_rejected(folder: Path, name: str) -> None:
    ingested = read(folder / name)
    for entry in ingested.files:
        assert entry.format == name
        assert entry.rejected == 0
        assert entry.used > 0
    warnings = [
        note.code
        for notes in (ingested.totals.notes, *(entry.notes for entry in ingested.files))
        for note in notes
        if note.severity == "warning"
    ]
    assert warnings == []


@pytest.mark.parametrize("writer", WRITERS, ids=lambda writer: writer.file)
def test_the_same_story_gives_the_same_bytes(writer: Writer) -> None:
    assert list(writer.lines(SCENE)) == list(writer.lines(SCENE))


Expect = Callable[[Served], int | None]


def _e2e(one: Served) -> int:
    return one.last_token_at_ns - one.arrived_at_ns


def _epoch(one: Served) -> int:
    return START_NS + one.arrived_at_ns


LENGTHS: dict[str, Expect] = {
    "prompt_tokens": lambda one: one.request.prompt_tokens,
    "output_tokens": lambda one: one.request.output_tokens,
}
TIMES: dict[str, Expect] = {
    "ttft_ns": lambda one: one.ttft_ns,
    "e2e_ns": _e2e,
}
CACHED: dict[str, Expect] = {"cached_tokens": lambda one: one.cached_tokens}
TIERS: dict[str, Expect] = {
    "cached_device_tokens": lambda one: one.device_tokens,
    "cached_remote_tokens": lambda one: one.pulled_tokens,
}
UTC: dict[str, Expect] = {"arrived_at_ns": _epoch}
COLUMNS: dict[str, dict[str, Expect]] = {
    "mooncake": LENGTHS,
    "dynamo_request_trace": {
        **LENGTHS,
        **TIMES,
        **CACHED,
        **UTC,
        "queue_ns": lambda one: one.scheduled_at_ns - one.arrived_at_ns,
        "prefill_ns": lambda one: one.first_token_at_ns - one.scheduled_at_ns,
    },
    "lmcache_hashes": {
        "prompt_tokens": LENGTHS["prompt_tokens"],
        "arrived_at_ns": lambda one: START_NS + one.scheduled_at_ns,
    },
    "vllm_text": {
        **UTC,
        "e2e_ns": _e2e,
    },
    "vllm_timing": {
        **LENGTHS,
        "queue_ns": lambda one: one.scheduled_at_ns - one.queued_at_ns,
        "prefill_ns": lambda one: one.first_token_at_ns - one.scheduled_at_ns,
        "ttft_ns": lambda one: one.first_token_at_ns - one.queued_at_ns,
        "e2e_ns": lambda one: one.last_token_at_ns - one.queued_at_ns,
    },
    "sglang_text": {
        **LENGTHS,
        **TIMES,
        **CACHED,
        **TIERS,
        **UTC,
        "queue_ns": lambda one: one.scheduled_at_ns - one.queued_at_ns,
    },
    "sglang_request_metrics": {
        **LENGTHS,
        **TIMES,
        **CACHED,
        **TIERS,
        **UTC,
        "queue_ns": lambda one: one.scheduled_at_ns - one.queued_at_ns,
    },
    "lmcache_text": {
        "prompt_tokens": LENGTHS["prompt_tokens"],
        **CACHED,
        **TIERS,
        "arrived_at_ns": lambda one: (START_NS + one.scheduled_at_ns) // MS * MS,
    },
    "litellm": {**LENGTHS, **TIMES, **CACHED, **UTC},
    "otlp_genai": {
        **LENGTHS,
        **TIMES,
        **UTC,
        "queue_ns": lambda one: one.scheduled_at_ns - one.queued_at_ns,
    },
    "aiperf": {**LENGTHS, **TIMES, **CACHED, **UTC},
}
"""What each format with request ids says of every request."""


@pytest.mark.parametrize("name", sorted(COLUMNS))
def test_every_request_has_the_numbers_of_the_story(
    folder: Path, served: list[Served], name: str
) -> None:
    hasher = KeyedHasher(SALT)
    rows = read(folder / name).frames["requests"]
    assert len(rows) == len(served)
    found = {row["request_id_key"]: row for row in rows.iter_rows(named=True)}
    for one in served:
        row = found[hasher.text_key("request", one.request.request_id)]
        wanted = {column: expect(one) for column, expect in COLUMNS[name].items()}
        assert {column: row[column] for column in wanted} == wanted


@pytest.mark.parametrize("name", ["bailian", "azure", "burstgpt"])
def test_traces_without_request_ids_have_the_numbers_in_order(
    folder: Path, served: list[Served], name: str
) -> None:
    rows = read(folder / name).frames["requests"].sort("arrived_at_ns")
    # Relative clocks are shown from the first row.
    start_ns = START_NS if name == "azure" else -served[0].arrived_at_ns
    assert rows["arrived_at_ns"].to_list() == [start_ns + one.arrived_at_ns for one in served]
    assert rows["prompt_tokens"].to_list() == [one.request.prompt_tokens for one in served]
    assert rows["output_tokens"].to_list() == [one.request.output_tokens for one in served]
    if name == "burstgpt":
        assert rows["e2e_ns"].to_list() == [_e2e(one) for one in served]


def test_mooncake_rows_come_at_whole_milliseconds(folder: Path, served: list[Served]) -> None:
    rows = read(folder / "mooncake").frames["requests"]
    first = served[0].arrived_at_ns // MS
    wanted = [(one.arrived_at_ns // MS - first) * MS for one in served]
    assert rows.sort("request_key")["arrived_at_ns"].to_list() == wanted


@pytest.mark.parametrize(
    ("name", "sessions"), [("bailian", "root"), ("litellm", "id"), ("aiperf", "id")]
)
def test_sessions_come_along(folder: Path, served: list[Served], name: str, sessions: str) -> None:
    rows = read(folder / name).frames["requests"]
    if sessions == "root":
        rows = rows.sort("arrived_at_ns")
        assert rows["turn"].to_list() == [one.request.turn for one in served]
    assert rows["session_key"].n_unique() == len({one.request.session for one in served})


@pytest.mark.parametrize(
    ("name", "block_tokens"),
    [("mooncake", 64), ("bailian", 16), ("dynamo_request_trace", 64), ("lmcache_hashes", 256)],
)
def test_blocks_repeat_as_in_the_story(
    folder: Path, served: list[Served], name: str, block_tokens: int
) -> None:
    totals = read(folder / name).totals
    parts = 64 // min(block_tokens, 64)
    seen: set[tuple[int, int]] = set()
    refs = 0
    for one in served:
        prompt, ids = one.request.prompt_tokens, one.request.block_ids
        if block_tokens <= 64:
            names = [(block, part) for block in ids for part in range(parts)]
            names = names[: -(-prompt // block_tokens)]
        else:  # whole chunks of four blocks, named by their last one
            names = [(ids[end], 0) for end in range(3, prompt // 256 * 4, 4)]
        seen.update(names)
        refs += len(names)
    assert totals.block_size_tokens == block_tokens
    assert (totals.block_refs, totals.distinct_blocks) == (refs, len(seen))


def test_loads_of_lmcache_are_the_pulls_of_the_story(folder: Path, served: list[Served]) -> None:
    transfers = read(folder / "lmcache_text").frames["transfers"]
    loads = transfers.filter(pl.col("direction") == "load")
    pulled = [one.pulled_tokens for one in served if one.pulled_tokens]
    assert sorted(loads["moved_tokens"].to_list()) == sorted(pulled)
    cost_ns = sum(round(ENGINE.pull_s(tokens) * SECOND) for tokens in pulled)
    # Printed to 0.1 µs.
    assert abs(int(loads["duration_ns"].sum()) - cost_ns) <= 100 * len(pulled)


def test_the_metrics_page_ends_with_the_totals_of_the_story(
    folder: Path, served: list[Served]
) -> None:
    text = (folder / "prometheus" / "metrics.prom").read_text()
    last: dict[str, float] = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            name, _, value = line.rpartition(" ")
            last[name.partition("{")[0]] = float(value)
    prompt = sum(one.request.prompt_tokens for one in served)
    device = sum(one.device_tokens for one in served)
    assert last["vllm:prefix_cache_queries_total"] == prompt == last["vllm:prompt_tokens_total"]
    assert last["vllm:prefix_cache_hits_total"] == device
    assert last["vllm:external_prefix_cache_queries_total"] == prompt - device
    assert last["vllm:external_prefix_cache_hits_total"] == sum(o.pulled_tokens for o in served)
    assert last["vllm:generation_tokens_total"] == sum(o.request.output_tokens for o in served)
    assert last["vllm:request_success_total"] == len(served)
    assert last["vllm:num_requests_running"] == last["vllm:num_requests_waiting"] == 0
    ttft_s = sum(one.ttft_ns for one in served) / SECOND
    assert last["vllm:time_to_first_token_seconds_sum"] == pytest.approx(ttft_s)


def test_batches_of_sglang_add_up(folder: Path, served: list[Served]) -> None:
    samples = read(folder / "sglang_text" / "sglang-server.log").frames["samples"]
    sums = {
        name: samples.filter(pl.col("metric") == name)["value"].sum()
        for name in ("new_requests", "computed_tokens", "cached_tokens")
    }
    cached = sum(one.cached_tokens for one in served)
    assert sums == {
        "new_requests": len(served),
        "computed_tokens": sum(one.request.prompt_tokens for one in served) - cached,
        "cached_tokens": cached,
    }


def test_kv_events_leave_in_hbm_what_the_story_leaves(folder: Path, served: list[Served]) -> None:
    events = read(folder / "kv_events").frames["block_events"].sort("event_key", "position")
    held: set[int] = set()
    for change, block in events.select("change", "block_key").iter_rows():
        if change == "stored":
            held.add(block)
        else:
            held.discard(block)
        assert change in {"stored", "removed"}
    kept: dict[int, None] = {}
    for one in sorted(served, key=lambda one: one.scheduled_at_ns):
        full = one.request.block_ids[: one.request.prompt_tokens // 64]
        kept.update(dict.fromkeys(full))
        for block in one.evicted:
            kept.pop(block, None)
    assert len(held) == len(kept) <= ENGINE.kv_capacity_tokens // 64


def test_hashes_of_blocks_do_not_meet() -> None:
    assert len({hashed(block) for block in range(100_000)}) == 100_000


WITH_IDS = sorted(COLUMNS)


@pytest.mark.parametrize("pair", list(combinations(WITH_IDS, 2)), ids="+".join)
def test_any_two_formats_are_one_set_of_requests(
    folder: Path, served: list[Served], pair: tuple[str, str]
) -> None:
    ingested = read(*(folder / name for name in pair))
    assert ingested.totals.requests == len(served)
    assert {source.role for source in ingested.sources} <= {"headline", "joined"}


def test_all_formats_at_once_are_one_set_of_requests(folder: Path, served: list[Served]) -> None:
    ingested = read(*(folder / name for name in WITH_IDS))
    totals = ingested.totals
    assert totals.requests == len(served)
    assert totals.prompt_tokens == sum(one.request.prompt_tokens for one in served)
    assert totals.cached_tokens == sum(one.cached_tokens for one in served)
