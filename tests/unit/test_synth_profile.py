"""Profiles: as files, with a stated reuse, endless, and from a dataset and back."""

from __future__ import annotations

import math
import tomllib
from dataclasses import replace
from itertools import islice
from pathlib import Path
from statistics import fmean, pstdev

import polars as pl
import pytest

from kvtrace.api import ingest, open_dataset
from kvtrace.errors import InputError, OutputError, UsageError
from kvtrace.ingest.pipeline import Ingested, ingest_paths
from kvtrace.reuse.facts import build_reuse
from kvtrace.store.dataset import Dataset
from kvtrace.synth import (
    Loaded,
    Order,
    Profile,
    Quantiles,
    Story,
    StoryEngine,
    derive_profile,
    dump_profile,
    generate,
    load_profile,
    read_profile,
    sample_order,
    sample_profile,
    write_story,
)
from kvtrace.synth.draws import Draws, Popularity, zipf_weights
from kvtrace.synth.generate import sessions
from kvtrace.synth.profilefile import parse_profile
from kvtrace.synth.reuse import Pilot, with_reuse
from kvtrace.synth.story import serve
from tests.traces import Traced
from tests.unit.test_export import at, dataset_of
from tests.unit.test_synth_generate import PLAIN, fixed

TOML = """
seed = 3
block_size_tokens = 64

[engine]
speed = 4.0
kv_capacity_tokens = 500000

[[workload]]
name = "chat"
sessions = 900
duration_s = 3600
arrivals = { process = "gamma", cv = 2.0 }
rhythm = { period_s = 3600, peak_to_trough = 4, peak_s = 1800 }
turns = { mean = 3, max = 12 }
prefixes = { count = 3, tokens = { median = 800, sigma = 0.3, low = 200, high = 3000 }, zipf = 1.0 }
first_tokens = { median = 1500, sigma = 0.8, low = 20, high = 12000 }
turn_tokens = { median = 300, sigma = 0.8, low = 5, high = 4000 }
output_tokens = { median = 200, sigma = 0.7, low = 1, high = 1500 }
think_s = { median = 30, sigma = 1, low = 2, high = 600 }
context_max_tokens = 32000

[[workload]]
name = "rag"
sessions = 1500
duration_s = 3600
prefixes = { count = 2, tokens = 500 }
first_tokens = { quantiles = [10, 30, 60, 120, 400] }
output_tokens = { median = 150, sigma = 0.5, low = 1, high = 800 }

[workload.documents]
count = 50
tokens = { median = 3000, sigma = 0.5, low = 500, high = 9000 }
zipf = 1.1
"""


def loaded(text: str = TOML) -> Loaded:
    return load_profile(parse_profile(tomllib.loads(text), "profile.toml"))


# Draws


def test_quantiles_are_straight_lines_between_points() -> None:
    spread = Quantiles(shares=(0.0, 0.5, 1.0), values=(10.0, 20.0, 100.0))
    assert [spread.at(u) for u in (0.0, 0.25, 0.5, 0.75)] == [10.0, 15.0, 20.0, 60.0]
    assert spread.at(1.0) == 100.0


def test_popularity_follows_the_weights() -> None:
    popularity = Popularity([1.0, 0.0, 3.0])
    draws = Draws(1, 0)
    picked = [popularity.pick(draws) for _ in range(4000)]
    assert set(picked) == {0, 2}
    # 3 of 4 go to the last: 3 000 of 4 000, give or take four standard deviations of 27.
    assert abs(picked.count(2) - 3000) < 110
    assert zipf_weights(3, 1.0) == [1.0, 0.5, pytest.approx(1 / 3)]


@pytest.mark.parametrize("cv", [0.5, 1.0, 2.0, 3.0])
def test_gaps_have_mean_one_and_their_variation(cv: float) -> None:
    draws = Draws(2, 0)
    gaps = [draws.gap(cv) for _ in range(40_000)]
    assert min(gaps) > 0.0
    assert fmean(gaps) == pytest.approx(1.0, abs=4 * cv / math.sqrt(40_000))
    assert pstdev(gaps) == pytest.approx(cv, rel=0.1)


def test_even_gaps_do_not_vary() -> None:
    assert Draws(2, 0).gap(0.0) == 1.0


# Sessions


def starts_s(profile: Profile) -> list[float]:
    return [session.start_ns / 1e9 for session in sessions(profile)]


def test_a_rhythm_moves_sessions_to_its_busy_parts() -> None:
    # Weights 1, 3, 0, 0 over 400 s: a quarter of the 8 even sessions in the first 100 s, the rest
    # in the second 100 s. Middles of eighths of the load (4 parts): 0.25, 0.75, 1.25 … 3.75.
    text = """
    [[workload]]
    name = "w"
    sessions = 8
    duration_s = 400
    arrivals = { process = "even" }
    rhythm = { period_s = 400, weights = [1, 3, 0, 0] }
    first_tokens = 10
    output_tokens = 1
    """
    found = starts_s(loaded(text).profile)
    wanted = [
        25.0,
        75.0,
        *(100 + 100 * (load - 1) / 3 for load in (1.25, 1.75, 2.25, 2.75, 3.25, 3.75)),
    ]
    assert found == pytest.approx(wanted, abs=1e-6)


def test_gamma_arrivals_keep_their_count_and_stay_inside() -> None:
    profile = Profile(
        1, 64, (replace(PLAIN, arrivals="gamma", cv=3.0, sessions=500, duration_s=1000),)
    )
    found = starts_s(profile)
    assert len(found) == 500
    assert found == sorted(found)
    assert 100 <= found[0] <= found[-1] < 1100


def test_prefixes_within_one_another_share_their_beginning() -> None:
    text = """
    block_size_tokens = 64
    [[workload]]
    name = "w"
    sessions = 60
    duration_s = 100
    first_tokens = 64
    output_tokens = 1
    prefix = [
      { tokens = 128, weight = 1 },
      { tokens = 256, weight = 1, within = 0 },
      { tokens = 320, weight = 1, within = 0 },
    ]
    """
    by_length: dict[int, tuple[int, ...]] = {}
    for request in generate(loaded(text).profile).requests:
        by_length.setdefault(request.prompt_tokens, request.block_ids)
    # 128, 256 or 320 tokens and 64 of one's own: 3, 5 or 6 blocks; the first 2 are common to all.
    assert {length: len(ids) for length, ids in by_length.items()} == {192: 3, 320: 5, 384: 6}
    assert len({ids[:2] for ids in by_length.values()}) == 1
    assert by_length[320][2] != by_length[384][2]


def test_equal_texts_are_one_prefix_in_all_workloads() -> None:
    text = "\n".join(
        f"""
        [[workload]]
        name = "w{number}"
        sessions = 1
        duration_s = 100
        first_tokens = 64
        output_tokens = 1
        prefix = [{{ tokens = 128, text = "{"same" if number < 2 else "other"}" }}]
        """
        for number in range(3)
    )
    ids = {one.workload: one.block_ids for one in generate(loaded(text).profile).requests}
    assert ids["w0"][:2] == ids["w1"][:2]
    assert not set(ids["w0"]) & set(ids["w2"])


def test_a_first_prompt_may_hold_its_prefix() -> None:
    text = """
    [[workload]]
    name = "w"
    sessions = 2
    duration_s = 100
    first_tokens = 192
    first_holds_prefix = true
    output_tokens = 1
    prefix = [{ tokens = 128 }]
    """
    first, second = generate(loaded(text).profile).requests
    assert first.prompt_tokens == 192
    assert first.block_ids[:2] == second.block_ids[:2]
    assert first.block_ids[2] != second.block_ids[2]


def test_a_pause_from_the_arrival_never_overtakes_the_reply() -> None:
    # Two turns, 1 s from arrival to arrival. The reply of 2 000 tokens takes longer than that.
    text = """
    [[workload]]
    name = "w"
    sessions = 1
    duration_s = 100
    arrivals = { process = "even" }
    turns = { quantiles = [2, 2] }
    first_tokens = 64
    turn_tokens = 64
    output_tokens = OUTPUT
    keeps_replies = false
    gap_s = 1
    """
    for output, waits in ((2000, True), (2, False)):
        story = loaded(text.replace("OUTPUT", str(output)))
        first, second = serve(generate(story.profile), story.engine)
        assert second.request.prompt_tokens == 128
        due_ns = first.last_token_at_ns if waits else first.arrived_at_ns + 1_000_000_000
        assert second.arrived_at_ns == due_ns


# The story, streaming


def test_a_story_is_what_serving_the_whole_trace_gives() -> None:
    profile = sample_profile(3)
    told = list(Story(profile, StoryEngine()).served())
    served = serve(generate(profile))
    assert [replace(one, evicted=()) for one in told] != []
    assert [(one.request.request_id, one.arrived_at_ns, one.cached_tokens) for one in told] == [
        (one.request.request_id, one.arrived_at_ns, one.cached_tokens) for one in served
    ]


def test_requests_cut_an_endless_story_at_their_number() -> None:
    story = loaded()
    few = list(Story(story.profile, story.engine, 150).served())
    more = list(Story(story.profile, story.engine, 9_000).served())
    assert len(few) == 150
    assert len(more) == 9_000  # more than the profile has in its hour
    assert few == more[:150]
    arrivals = [one.arrived_at_ns for one in more]
    assert arrivals == sorted(arrivals)
    assert arrivals[-1] > 3600e9
    assert len({one.request.request_id for one in more}) == 9_000


def test_an_endless_story_forgets_sessions_that_are_over() -> None:
    # What is remembered of shared and running sessions stays small while 49 000 blocks go by.
    story = loaded()
    names: set[int] = set()
    for one in islice(Story(story.profile, story.engine, 3_000).served(), 3_000):
        names.update(one.request.block_ids)
        assert len(one.evicted) <= len(one.request.block_ids)
    assert len(names) > 40_000


# Reuse


def test_the_measure_of_reuse_is_what_the_product_finds(tmp_path: Path) -> None:
    profile = replace(sample_profile(5), nominal_reply_s=6.0)
    write_story(tmp_path, Loaded(profile, StoryEngine(), None), Order(("mooncake",)))
    found = _ratio(ingest_paths([tmp_path], salt=b"s" * 32))
    # In an open loop the order of turns differs a little from the story's.
    assert Pilot(profile).reuse_ratio(0.0) == pytest.approx(found, abs=0.002)


@pytest.mark.parametrize("target", [0.45, 0.6, 0.75])
def test_a_stated_reuse_is_met_in_the_files(tmp_path: Path, target: float) -> None:
    story = loaded()
    write_story(tmp_path, replace(story, reuse=target), Order(("mooncake",)))
    ingested = ingest_paths([tmp_path], salt=b"s" * 32)
    assert _ratio(ingested) == pytest.approx(target, abs=0.01)
    # The lengths are those of the profile without it.
    plain = sum(one.prompt_tokens for one in generate(story.profile).requests)
    assert ingested.totals.prompt_tokens == pytest.approx(plain, rel=0.02)


def test_a_reuse_out_of_reach_says_what_can_be_reached() -> None:
    with pytest.raises(UsageError) as caught:
        with_reuse(loaded().profile, 0.99)
    assert caught.value.code == "KVT-U062"
    assert "with nothing shared" in (caught.value.cause or "")


def _ratio(ingested: Ingested) -> float:
    requests = ingested.frames["requests"]
    facts = build_reuse(requests, ingested.frames["blocks"], ingested.domains)
    reusable = int(facts.filter("is_reusable")["token_count"].sum())
    return reusable / int(requests["prompt_tokens"].sum())


# Files


def test_a_profile_file_goes_out_and_in(tmp_path: Path) -> None:
    table = parse_profile(tomllib.loads(TOML), "profile.toml")
    path = tmp_path / "again.toml"
    path.write_text(dump_profile(table, ("one", "two")))
    assert path.read_text().startswith("# one\n# two\nseed = 3\n")
    again = read_profile(path)
    assert again == table
    assert load_profile(again) == load_profile(table)


@pytest.mark.parametrize(
    ("found", "written", "cause"),
    [
        ("sessions = 900", "sesions = 900", "unknown field `sesions`"),
        ("sessions = 900", "sessions = -1", "Expected `int` >= 1"),
        ("sessions = 900", 'sessions = "900"', "Expected `int`, got `str`"),
        ("mean = 3", "mean = nan", "Expected `float` >= 1"),
        ("quantiles = [10, 30, 60, 120, 400]", "quantiles = [10, 5]", "do not fall"),
        ("quantiles = [10, 30, 60, 120, 400]", "quantiles = [10]", "two or more"),
        ("quantiles = [10, 30, 60, 120, 400]", "sigma = 1.0", "either `median` or `quantiles`"),
        ("low = 20, high = 12000", "low = 20, high = 10", "`low` of a distribution"),
        ("peak_to_trough = 4, ", "", "either `weights` or `peak_to_trough`"),
        ("think_s = {", "gap_s = 3\nthink_s = {", "think_s and gap_s"),
        ("[engine]", "[engine", "line"),
        ("speed = 4.0", "speed = 0", "Expected `float` > 0"),
    ],
)
def test_a_wrong_profile_names_its_fault(
    tmp_path: Path, found: str, written: str, cause: str
) -> None:
    path = tmp_path / "profile.toml"
    assert found in TOML
    path.write_text(TOML.replace(found, written, 1))
    with pytest.raises(UsageError) as caught:
        read_profile(path)
    assert caught.value.code == "KVT-U061"
    assert cause in (caught.value.cause or "")


def test_a_missing_profile_is_said(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        read_profile(tmp_path / "none.toml")
    assert caught.value.code == "KVT-U060"


def test_a_later_prefix_cannot_be_within() -> None:
    text = TOML.replace(
        "prefixes = { count = 3, tokens = { median = 800, sigma = 0.3, low = 200, high = 3000 },"
        " zipf = 1.0 }",
        "prefix = [{ tokens = 9, within = 0 }]",
    )
    with pytest.raises(UsageError) as caught:
        parse_profile(tomllib.loads(text), "p")
    assert "within a later one" in (caught.value.cause or "")


# What can be written


def test_unknown_formats_and_other_blocks_are_refused(tmp_path: Path) -> None:
    story = sample_order(1)
    with pytest.raises(UsageError) as caught:
        write_story(tmp_path, story, Order(("vllm_txt",), 5))
    assert caught.value.code == "KVT-U064"
    assert caught.value.hint == (
        "--format vllm_text|ollama_text|vllm_timing; all that can be written: kvtrace synth --help"
    )
    assert caught.value.cause == "it is no format of `kvtrace formats`"
    with pytest.raises(UsageError) as nothing_close:
        write_story(tmp_path, story, Order(("zzzz",), 5))
    assert nothing_close.value.hint == "all that can be written: kvtrace synth --help"
    odd = replace(story, profile=replace(story.profile, block_size_tokens=100))
    for name in ("bailian", "lmcache_hashes"):
        with pytest.raises(UsageError) as caught:
            write_story(tmp_path, odd, Order((name,), 5))
        assert caught.value.code == "KVT-U063"
    # `all` is all that the blocks allow.
    names = {path.name for path in write_story(tmp_path, odd, Order(("all",), 5))}
    assert "mooncake.jsonl" in names
    assert not names & {"bailian.jsonl", "lmcache-hashes.jsonl"}


def test_a_file_in_the_way_is_an_output_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError) as caught:
        write_story(tmp_path / "file", sample_order(1), Order(("azure",), 5))
    assert caught.value.code == "KVT-O011"


# From a dataset


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """About 4 000 requests of the profile above, ingested."""
    folder = tmp_path_factory.mktemp("source")
    write_story(folder / "logs", replace(loaded(), reuse=0.5), Order(("mooncake",)))
    ingest([folder / "logs"], output=folder / "out")
    return open_dataset(folder / "out")


def test_profile_round_trip_keeps_reuse_and_lengths(source: Dataset, tmp_path: Path) -> None:
    derived = derive_profile(source, seed=9)
    assert derived.notes == ()
    write_story(tmp_path, load_profile(derived.table), Order(("mooncake",)))
    again = ingest_paths([tmp_path], salt=b"s" * 32)
    real, made = source.table("requests"), again.frames["requests"]
    assert len(made) == pytest.approx(len(real), rel=0.05)
    for column in ("prompt_tokens", "output_tokens"):
        for share in (0.1, 0.25, 0.5, 0.75, 0.9, 0.95):
            wanted = real[column].quantile(share)
            assert made[column].quantile(share) == pytest.approx(wanted, rel=0.05), (column, share)
    reusable = int(source.table("reuse").filter("is_reusable")["token_count"].sum())
    ratio = reusable / int(real["prompt_tokens"].sum())
    assert derived.table.reuse == pytest.approx(ratio, abs=1e-4)
    assert _ratio(again) == pytest.approx(ratio, abs=0.02)


def test_profiles_of_a_dataset_are_the_same_each_time_and_hold_no_name(source: Dataset) -> None:
    once, again = (dump_profile(derive_profile(source, seed=9).table) for _ in range(2))
    assert once == again
    assert "chatcmpl" not in once
    assert "model" not in once


def test_turns_are_told_by_blocks_where_there_are_no_sessions(tmp_path: Path) -> None:
    # Blocks of 4. Requests 0, 2 and 4 are one conversation: each begins with all of the one before.
    # Request 1 begins with the same first block only, 3 goes on from 1. 5 stands alone.
    rows = [
        Traced([1, 2, 3], 0, at(0, output_tokens=1)),
        Traced([1, 8, 9], 0, at(1, output_tokens=1)),
        Traced([1, 2, 3, 4, 5], 0, at(10, output_tokens=1)),
        Traced([1, 8, 9, 10], 0, at(12, output_tokens=1)),
        Traced([1, 2, 3, 4, 5, 6], 0, at(25, output_tokens=1)),
        Traced([20], 0, at(30, output_tokens=1)),
    ]
    derived = derive_profile(_with_reuse(tmp_path, rows), seed=1)
    (only,) = derived.table.workload  # six conversations are too few for classes
    assert only.sessions == 3
    assert only.turns.quantiles is not None
    assert (only.turns.quantiles[0], only.turns.quantiles[-1]) == (1.0, 3.0)
    # Pauses 10, 15 and 11 s; growth 8, 4 and 4 tokens; the block that two conversations begin with.
    assert only.gap_s is not None
    assert not isinstance(only.gap_s, float)
    assert only.gap_s.quantiles is not None
    assert (only.gap_s.quantiles[0], only.gap_s.quantiles[-1]) == (10.0, 15.0)
    assert [(one.tokens, one.weight) for one in only.prefix] == [(4, 2.0)]
    assert only.unshared_weight == 1.0


def test_sessions_of_the_source_are_turns_where_there_are_no_blocks(tmp_path: Path) -> None:
    rows = [
        Traced([], 0, at(0, prompt_tokens=10, session_key=1)),
        Traced([], 0, at(5, prompt_tokens=20)),
        Traced([], 0, at(9, prompt_tokens=30, session_key=1)),
    ]
    derived = derive_profile(dataset_of(tmp_path, rows), seed=1)
    (only,) = derived.table.workload
    assert only.sessions == 2
    assert derived.table.reuse is None
    assert any("no block ids" in note for note in derived.notes)
    assert any("output lengths are unknown" in note for note in derived.notes)


def _cached(*pairs: tuple[int, int | None]) -> list[Traced]:
    """Requests with (prompt tokens, cached tokens)."""
    return [
        Traced([], 0, at(5 * n, prompt_tokens=prompt, cached_tokens=cached, output_tokens=1))
        for n, (prompt, cached) in enumerate(pairs)
    ]


def test_cached_counts_are_the_reuse_where_there_are_no_blocks(tmp_path: Path) -> None:
    # 300 of 1 000 tokens were cached where that is known; the third request does not say.
    rows = _cached((600, 0), (400, 300), (900, None))
    derived = derive_profile(dataset_of(tmp_path, rows), seed=1)
    assert derived.table.reuse == 0.3
    assert not derived.has_blocks
    assert any("30.0%" in note for note in derived.notes)


def test_a_reuse_that_cannot_be_had_becomes_the_nearest(tmp_path: Path) -> None:
    # Prompts of less than a block share nothing.
    derived = derive_profile(dataset_of(tmp_path, _cached((60, 0), (40, 30))), seed=1)
    assert derived.table.reuse == 0.0
    assert any("cannot be had" in note for note in derived.notes)
    story = replace(load_profile(derived.table), reuse=0.3)
    with pytest.raises(UsageError):
        write_story(tmp_path / "strict", story, Order(("azure",)))
    write_story(tmp_path / "near", replace(story, takes_nearest=True), Order(("azure",)))


def test_a_dataset_without_arrivals_gives_no_profile(tmp_path: Path) -> None:
    rows = [Traced([], 0, {"clock": "order", "arrived_at_ns": None, "prompt_tokens": 3})]
    with pytest.raises(InputError) as caught:
        derive_profile(dataset_of(tmp_path, rows), seed=1)
    assert caught.value.code == "KVT-S006"


def _with_reuse(folder: Path, rows: list[Traced]) -> Dataset:
    """The dataset with its reuse facts, as ingest writes them."""
    plain = dataset_of(folder, rows)
    facts = build_reuse(plain.table("requests"), plain.table("blocks"), plain.manifest.domains)
    return _Facts(plain, facts)


class _Facts(Dataset):
    """A dataset whose reuse table is in memory."""

    def __init__(self, plain: Dataset, facts: pl.DataFrame) -> None:
        super().__init__(plain.directory, plain.manifest)
        self._facts = facts

    def table(self, name: str) -> pl.DataFrame:
        return self._facts if name == "reuse" else super().table(name)


def test_fixed_lengths_are_fixed() -> None:
    assert fixed(5).at(0.3) == 5.0
