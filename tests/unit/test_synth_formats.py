"""Every writer's file is recognised, read without loss, and gives back the numbers of the story."""

from __future__ import annotations

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
from kvtrace.synth.formats import benchmarks
from kvtrace.synth.formats.scene import hashed
from kvtrace.synth.formats.unwritten import UNWRITTEN
from tests.unit.synth_carries import CARRIES, OF_REQUESTS

SALT = b"s" * 32
SECOND = 1_000_000_000
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
    assert set(warnings) == CARRIES[name].warnings


@pytest.mark.parametrize("writer", WRITERS, ids=lambda writer: writer.file)
def test_the_same_story_gives_the_same_bytes(writer: Writer) -> None:
    assert list(writer.lines(SCENE)) == list(writer.lines(SCENE))


@pytest.mark.parametrize("name", OF_REQUESTS)
def test_ingest_finds_the_requests_of_the_story(
    folder: Path, served: list[Served], name: str
) -> None:
    carried = CARRIES[name]
    rows = read(folder / name).frames["requests"].sort("arrived_at_ns", "request_key")
    assert len(rows) == len(served)
    assert set(rows["status"]) == {"ok"}
    asked = carried.in_order(served)
    found = list(rows.iter_rows(named=True))
    if carried.has_ids:
        hasher = KeyedHasher(SALT)
        by_id = {row["request_id_key"]: row for row in found}
        found = [by_id[hasher.text_key("request", one.request.request_id)] for one in asked]
    for one, row in zip(asked, found, strict=True):
        wanted = {column: expect(one) for column, expect in carried.columns.items()}
        wanted["arrived_at_ns"] = carried.expected_arrival(one, asked[0])
        assert {column: row[column] for column in wanted} == wanted
    if carried.has_sessions:
        sessions = {
            (row["session_key"], one.request.session) for one, row in zip(asked, found, strict=True)
        }
        assert (
            len(sessions)
            == len({one.request.session for one in served})
            == rows["session_key"].n_unique()
        )


def test_every_written_format_says_what_it_carries_and_every_other_why_not() -> None:
    assert sorted(CARRIES) == sorted(FORMATS)
    registered = {one.name for one in all_formats()}
    assert set(FORMATS) | set(UNWRITTEN) == registered
    assert set(FORMATS) & set(UNWRITTEN) == set()


def test_turns_come_along(folder: Path, served: list[Served]) -> None:
    rows = read(folder / "bailian").frames["requests"].sort("arrived_at_ns")
    assert rows["turn"].to_list() == [one.request.turn for one in served]


BLOCKS = sorted(name for name, carried in CARRIES.items() if carried.block_tokens)


@pytest.mark.parametrize("name", BLOCKS)
def test_blocks_repeat_as_in_the_story(folder: Path, served: list[Served], name: str) -> None:
    totals = read(folder / name).totals
    carried = CARRIES[name]
    block_tokens = carried.block_tokens or 0
    parts = 64 // min(block_tokens, 64)
    seen: set[tuple[int, int]] = set()
    refs = 0
    for one in served:
        prompt, ids = one.request.prompt_tokens, one.request.block_ids
        if block_tokens <= 64:
            names = [(block, part) for block in ids for part in range(parts)]
            whole, rest = divmod(prompt, block_tokens)
            names = names[: whole + bool(rest and carried.has_partial)]
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


@pytest.mark.parametrize("name", ["vllm_bench", "sglang_bench"])
def test_long_stories_are_several_runs_of_a_benchmark(
    tmp_path: Path, served: list[Served], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(benchmarks, "RUN_REQUESTS", 30)
    (path,) = write_story(tmp_path, Loaded(PROFILE, ENGINE, None), Order((name,)))
    assert len(path.read_text().splitlines()) == -(-len(served) // 30) > 2
    rows = read(path).frames["requests"].sort("request_key")
    wanted = [(one.request.prompt_tokens, one.ttft_ns) for one in served]
    assert list(rows.select("prompt_tokens", "ttft_ns").iter_rows()) == wanted


WITH_IDS = [name for name in OF_REQUESTS if CARRIES[name].has_ids]


@pytest.mark.parametrize("name", WITH_IDS)
@pytest.mark.parametrize("other", ["dynamo_request_trace", "vllm_timing"])
def test_any_format_joins_another_by_request_id(
    folder: Path, served: list[Served], name: str, other: str
) -> None:
    ingested = read(*(folder / one for one in {name, other}))
    assert ingested.totals.requests == len(served)
    assert {source.role for source in ingested.sources} <= {"headline", "joined"}


def test_all_formats_at_once_are_one_set_of_requests(folder: Path, served: list[Served]) -> None:
    ingested = read(*(folder / name for name in WITH_IDS))
    totals = ingested.totals
    assert totals.requests == len(served)
    assert totals.prompt_tokens == sum(one.request.prompt_tokens for one in served)
    assert totals.cached_tokens == sum(one.cached_tokens for one in served)
