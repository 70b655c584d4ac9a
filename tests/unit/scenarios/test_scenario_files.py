"""Scenario files: what each key becomes, and what is refused at which line."""

from __future__ import annotations

import re
from dataclasses import fields, replace
from pathlib import Path

import pytest

from kvtrace.cost.fleet import default_fleet
from kvtrace.cost.toml_lines import line_of
from kvtrace.errors import UsageError
from kvtrace.replay.engine import simulate
from kvtrace.replay.engines import find_engine
from kvtrace.replay.options.presets import build_scenarios
from kvtrace.replay.scenario import LinkSpec, Scenario, StageSpec, TierSpec
from kvtrace.scenarios.build import build_scenario, fleet_with, hardware_of
from kvtrace.scenarios.document import OPTIONS, load_scenario, shipped_scenarios
from kvtrace.scenarios.plan import LINK_KEYS, SCENARIO_KEYS, TIER_KEYS, TOP_KEYS, read_plan
from kvtrace.scenarios.sweeps import Axis, expand
from kvtrace.scenarios.topology import wire
from kvtrace.units import GIB
from tests.conftest import REPO
from tests.unit.replay_cases import Ask, make_trace
from tests.unit.scenarios.cases import BLOCK_TOKENS, built, deployment, document, fleet

WHOLE = """
title = "Three tiers"
routing = "round_robin"
load_decision = "arbiter"
seed = 7
hbm = "10GiB"
chain = ["host_dram", "pool"]
request_rate = "80Gb/s"

[tier.pool]
path = "pool_tcp"
capacity = "4TB"
lookup = "2ms"
match_tokens = 256

[tier.host_dram]
capacity_blocks = 100
policy = "arc"

[link.nic_tcp]
rate = "8GB/s"

[isolation]
long_prompt_tokens = 8192

[[throttle]]
link = "nic_tcp"
rate = "1GB/s"
moves = "writes"
"""


def test_a_whole_file_becomes_a_scenario() -> None:
    scenario = built(WHOLE)
    assert (scenario.title, scenario.option_id) == ("Three tiers", "ours")
    assert (scenario.routing, scenario.load_decision, scenario.seed) == (
        "round_robin",
        "arbiter",
        7,
    )
    assert scenario.hbm_capacity_bytes == 10 * GIB
    assert scenario.request_bytes_per_s == 10e9  # 80 Gb/s are bits
    dram, pool = scenario.tiers
    assert (dram.tier_id, dram.scope, dram.policy) == ("host_dram", "instance", "arc")
    # 100 blocks of 16 tokens of 327 680 bytes
    assert dram.capacity_bytes == 100 * BLOCK_TOKENS * 327_680
    assert (pool.scope, pool.capacity_bytes, pool.lookup_s) == ("shared", 4e12, 0.002)
    assert pool.match_tokens == 256
    assert scenario.links["nic_tcp"].bytes_per_s == 8e9
    assert {link for stage in pool.read for link in stage.link_ids} <= set(scenario.links)
    assert scenario.isolation is not None
    assert scenario.isolation.long_prompt_tokens == 8192
    (throttle,) = scenario.throttles
    assert (throttle.link_id, throttle.bytes_per_s, throttle.moves) == (
        "nic_tcp",
        1e9,
        "writes",
    )


def test_an_option_without_changes_is_the_option() -> None:
    options = {one.option_id: one for one in build_scenarios(deployment(), fleet())}
    assert tuple(options) == OPTIONS
    for name, option in options.items():
        plan = read_plan(load_scenario(name))
        assert plan.load.words() == ""
        same = built(f'base = "{name}"')
        assert (same.tiers, dict(same.links)) == (option.tiers, dict(option.links))
        assert (same.reuse, same.routing) == (option.reuse, option.routing)


def test_an_engine_gives_what_the_file_does_not_state() -> None:
    preset = find_engine("lmcache")
    text = 'base = "dram_idle"\nengine = "lmcache"\n[tier.host_dram]\npolicy = "arc"\n'
    scenario = built(text)
    (dram,) = scenario.tiers
    assert dram.match_tokens == preset.host["match_tokens"] != 0
    assert dram.policy == "arc"
    assert built(text + "match_tokens = 32\n").tiers[0].match_tokens == 32
    assert built('overlap = "layerwise"\n').layers == deployment().llm.layers == 80


def test_a_group_of_data_parallel_ranks_is_an_instance() -> None:
    plan = read_plan(document('dp = 2\npp = 2\ntopology = "hgx"\nbase = "dram_idle"\n'))
    assert plan.layout == {"dp": 2, "pp": 2}
    engine = replace(deployment(), dp=2, pp=2)
    groups = default_fleet(engine, 4)
    scenario = build_scenario(plan, engine, groups, block_tokens=BLOCK_TOKENS)
    assert (groups.gpus_per_instance, groups.gpus) == (8, 32)  # TP 4 in two stages, four groups
    assert scenario.hbm_capacity_bytes == engine.hbm_cache_bytes / 2
    assert scenario.links["host_dram_read"].instances_per_link == 1  # a group fills its node


def test_stages_and_links_can_be_written_out() -> None:
    scenario = built(
        """
        [tier.slow]
        scope = "shared"
        capacity_blocks = 20
        read = [{ kind = "pull", links = ["wire"], latency = "1ms" }]
        write = [{ kind = "pull", links = ["wire"] }]
        [link.wire]
        rate = "5GB/s"
        """
    )
    (tier,) = scenario.tiers
    assert tier.read == (StageSpec("pull", ("wire",), 0.001),)
    assert tier.write == (StageSpec("pull", ("wire",), 0.0),)
    assert scenario.links["wire"] == LinkSpec("wire", "shared", 5e9)
    result = simulate(make_trace([Ask(0, "ab"), Ask(9, "ab")], block_size=16), scenario)
    assert result.timeline.ttft_s.shape == (2,)


@pytest.mark.parametrize("path", ["local_nvme", "pool_ssd", "object_store", "20GB/s"])
def test_a_tier_may_lie_behind_any_path_of_the_ledger(path: str) -> None:
    scenario = built(f'[tier.below]\npath = "{path}"\ncapacity = "1TB"\n')
    (tier,) = scenario.tiers
    assert tier.scope == ("instance" if path == "local_nvme" else "shared")
    ids = {link for stage in (*tier.read, *tier.write) for link in stage.link_ids}
    assert ids == set(scenario.links)
    # What is read into host memory and out of it again is written the other way round.
    assert len(tier.read) == len(tier.write)


@pytest.mark.parametrize("name", shipped_scenarios())
def test_shipped_scenarios_can_be_built(name: str) -> None:
    plan = read_plan(load_scenario(name))
    assert plan.title
    assert plan.load.requests is None or plan.load.requests > 0


@pytest.mark.parametrize(
    ("text", "line", "words", "hint"),
    [
        ("\n[pool]\ncapacity = '1TB'\n", 2, "no table `[pool]`", "`[tier.pool]`"),
        ("\n[tier.pool]\ncapacty = '1TB'\n", 3, "unknown key `capacty`", "`capacity`"),
        ("rooting = 'round_robin'\n", 1, "unknown key `rooting`", "`routing`"),
        ("seed = 1\nrouting = 'nearest'\n", 2, "`nearest` is none of round_robin", ""),
        ("hbm = 80\n", 1, "needs a unit", ""),
        ("[tier.pool]\ncapacity = '4T'\n", 2, "no clear unit of bytes", "GiB"),
        ("[tier.pool]\ncapacity = '1TB'\ncapacity_blocks = 3\n", 3, "both stated", ""),
        ("hbm = '80GB'\nhbm_blocks = 9\n", 2, "`hbm` and `hbm_blocks` are both stated", ""),
        ("seed = 1\nkv_bytes_per_token = 0\n", 2, "is not above zero", ""),
        ("[tier.pool]\nhigh_watermark = 2\n", 2, "is a ratio", ""),
        ("base = 'hbm'\n", 1, "there is no option `hbm`", "hbm_only"),
        ("engine = 'vlm'\n", 1, "close names: vllm", "trtllm"),
        ("seed = -1\n", 1, "below zero", ""),
        ("growth = 0\n", 1, "`growth` is not above zero", ""),
        ("thin = 0\n", 1, "`thin` is not in (0, 1]", ""),
        ("tier = 3\n", 1, "`tier` is not a table", ""),
        ("chain = 'pool'\n", 1, "not a list of texts", ""),
        ("[[throttle]]\nlink = 'pcie'\n", 1, "`rate` is missing", ""),
        ("closed_loop = 'yes'\n", 1, "true or false", ""),
        ("[tier.far]\ncapacity = '1TB'\n", 1, "nothing says how tier `far` is reached", "path"),
        ("[link.far]\nscope = 'shared'\n", 1, "there is no link `far` to change", "none"),
        ("[tier.a]\nread = [{ links = ['x'] }]\n", 2, "a stage needs `kind`", ""),
    ],
)
def test_a_mistake_is_named_with_its_line(text: str, line: int, words: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        built(text.replace("'", '"'))
    error = caught.value
    assert error.where is not None
    assert (error.code, error.where.path, error.where.line) == ("KVT-N010", "ours.toml", line)
    assert words in f"{error.message}\n{error.cause}"
    assert hint in (error.hint or "")


def test_a_chain_of_unknown_tiers_is_refused() -> None:
    with pytest.raises(UsageError, match="chain names no tier `pool`"):
        built('base = "dram_idle"\nchain = ["pool"]\n')


def test_a_file_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    (tmp_path / "ours.toml").write_bytes(b'\xef\xbb\xbftitle = "Ours"\n')
    assert read_plan(load_scenario(str(tmp_path / "ours.toml"))).title == "Ours"


def test_a_chain_asks_a_tier_once() -> None:
    with pytest.raises(UsageError) as refused:
        built('base = "dram_idle"\nchain = ["host_dram", "host_dram"]\n')
    assert "names `host_dram` twice" in str(refused.value.cause)


def test_files_are_read_by_path_and_others_by_name(tmp_path: Path) -> None:
    place = tmp_path / "mine.toml"
    place.write_text('base = "dram_idle"\n', encoding="utf-8")
    assert load_scenario(str(place)).name == "mine"
    with pytest.raises(UsageError, match="cannot read"):
        load_scenario(str(tmp_path / "absent.toml"))
    (tmp_path / "node.toml").write_text("[node]\ngpus = 4\n", encoding="utf-8")
    place.write_text('topology = "node.toml"\nhardware = "our.toml"\n', encoding="utf-8")
    plan = read_plan(load_scenario(str(place)))
    assert plan.topology is not None
    assert plan.topology.table == {"node": {"gpus": 4}}
    assert plan.serving == {"hardware": str(tmp_path / "our.toml")}
    place.write_text("base = dram_idle\n", encoding="utf-8")
    with pytest.raises(UsageError, match="is not TOML"):
        load_scenario(str(place))
    with pytest.raises(UsageError) as caught:
        load_scenario("poisen")
    assert caught.value.cause == "close names: poison"


def test_every_plain_field_of_the_replay_has_a_key() -> None:
    def named(spec: type) -> set[str]:
        return {field.name for field in fields(spec)}

    by_hand = {"option_id", "title", "instances", "hbm_capacity_bytes", "kv_bytes_per_token"}
    by_hand |= {"stages"}  # `pp`
    structures = {
        "tiers",
        "links",
        "prefill",
        "decode",
        "step",
        "isolation",
        "throttles",
        "handoff",
    }
    read = {key.field for key in SCENARIO_KEYS.values()}
    assert read == named(Scenario) - by_hand - structures
    tier = {key.field for key in TIER_KEYS.values()}
    assert tier == named(TierSpec) - {"tier_id", "capacity_bytes", "read", "write"}
    assert {key.field for key in LINK_KEYS.values()} == named(LinkSpec) - {"link_id"}


def test_the_line_of_a_key() -> None:
    text = "a = 1\n[b]\na = 2\n[b.c]  # note\nd.e = 3\n"
    assert line_of(text, ("a",)) == 1
    assert line_of(text, ("b", "a")) == 3
    assert line_of(text, ("b", "c", "d", "e")) == 5
    assert line_of(text, ("b", "c", "x")) == 4
    assert line_of(text, ("z",)) is None


def test_every_key_stands_in_the_docs() -> None:
    told = (REPO / "docs/replay.md").read_text(encoding="utf-8")
    keys = {*TOP_KEYS, *TIER_KEYS, *LINK_KEYS, "capacity", "capacity_blocks", "path"}
    keys -= {"tier", "link"}  # their tables stand as `[tier.NAME]`
    assert sorted(key for key in keys if f"`{key}`" not in told) == []
    assert all(f"`{name}`" in told for name in (*OPTIONS, *shipped_scenarios()))


def test_examples_of_the_docs_can_be_built() -> None:
    told = (REPO / "docs/replay.md").read_text(encoding="utf-8")
    examples = re.findall(r"^```toml[^\n]*\n(.*?)^```", told, flags=re.M | re.S)
    assert len(examples) >= 2
    for text in examples:
        if "[node]" in text:
            assert wire(document(text), deployment(), fleet()).routes
        else:
            plan = read_plan(document(text))
            assert hardware_of(plan, "H100-SXM5").gpu.name == "H100-SXM5"
            built_of = build_scenario(plan, deployment(), fleet(), block_tokens=BLOCK_TOKENS)
            assert built_of.option_id == "ours"


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ('\n\n[handoff]\nout_links = ["a"]\nin_links = ["a"]\nlatency = "1ms"', 3,
         "no instance is for prefill alone"),
        ("seed = 1\nload_threshold_tokens = 64", 2, "`load_decision` is `always`"),
        ('overlap = "pipelined"', 1, "one chunk passes"),
        ("load_chunk_tokens = 256", 1, "`overlap` is `serial`"),
        ("tp = 4\nep = 2", 2, "no experts"),
        ('base = "pool_dram_tcp"\nchain = ["pool"]\n[tier.host_dram]\ncapacity = "1TB"', 3,
         "`chain` leaves it out"),
    ],
)  # fmt: skip
def test_a_key_that_does_nothing_is_named_with_its_line(text: str, line: int, words: str) -> None:
    with pytest.raises(UsageError, match="cannot be used") as caught:
        built(text)
    assert caught.value.where is not None
    assert caught.value.where.line == line
    assert words in str(caught.value.cause)
    # A sweep may set what gives it an effect: the start alone is no mistake then.
    swept = replace(document(text), swept={"instances": "instances=4"})
    build_scenario(read_plan(swept), deployment(), fleet(), block_tokens=BLOCK_TOKENS)


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ('base = "pool_dram_tcp"\n[hardware]\ngpu = "H100-SXM5"\n[hardware.rdma]\nrate = "4"', 5,
         "no clear unit"),
        ('[fleet]\ninstances = 2\npool_nodez = 3', 3, "`pool_nodes`"),
        ('base = "pool_dram_tcp"\n\n[topology.node]\ngpus = 8\nuplink = "50"', 5, "no clear unit"),
        ('\n\n[tier.pool2]\nread = [{ kind = "pull", links = ["a"] }]', 4,
         "no `write`"),
        ('base = "pool_dram_tcp"\n[tier.pool]\ninclusion = "exclusive"', 2, "exclusive"),
    ],
)  # fmt: skip
def test_mistakes_in_tables_of_other_readers_have_their_line(
    text: str, line: int, words: str
) -> None:
    def used() -> Scenario:
        plan = read_plan(document(text))
        hardware_of(plan, "H100-SXM5")
        stated = fleet_with(plan, fleet())
        return build_scenario(plan, deployment(), stated, block_tokens=BLOCK_TOKENS)

    with pytest.raises(UsageError) as caught:
        used()
    assert caught.value.code == "KVT-N010"
    assert caught.value.where is not None
    assert (caught.value.where.path, caught.value.where.line) == ("ours.toml", line)
    assert words in str(caught.value.cause)


def test_what_a_sweep_set_is_named_by_its_flag() -> None:
    (case,) = expand(
        [document('base = "pool_dram_tcp"')], [Axis("rdma.rate", ("4",))], one_at_a_time=False
    )
    with pytest.raises(UsageError) as caught:
        hardware_of(read_plan(case.document), "H100-SXM5")
    assert caught.value.where is not None
    assert caught.value.where.detail == "set by `--sweep rdma.rate=4`"
