"""The running system as an option: what is known to run below HBM, and what stands in its place."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kvtrace.api.observed import with_observed
from kvtrace.api.opened import whole_trace
from kvtrace.api.setup import choose_deployment, choose_fleet
from kvtrace.api.verbs import ingest
from kvtrace.audit.slo.fleets import build_fleets
from kvtrace.config import resolve_settings
from kvtrace.cost.deployment import Deployment, build_deployment
from kvtrace.cost.fleet import Fleet, default_fleet, load_fleet
from kvtrace.cost.tco.need import Need
from kvtrace.replay.engine import simulate
from kvtrace.replay.options.catalogue import build_catalogue, find_option
from kvtrace.replay.options.ground import Ground
from kvtrace.units import GIB, TIB
from tests.formats.reading import DATA
from tests.unit.replay_cases import Ask, make_trace


@pytest.fixture(scope="module")
def deployment() -> Deployment:
    return build_deployment("Llama-3.1-70B", "H100-SXM5", tp=8)


def fleet_of(deployment: Deployment, tmp_path: Path, text: str) -> Fleet:
    path = tmp_path / "fleet.toml"
    path.write_text(text)
    return load_fleet(path, default_fleet(deployment, 2))


def absent(ground: Ground) -> str:
    catalogue = build_catalogue(ground, is_full=False)
    assert "as_observed" not in catalogue.by_id
    return next(one.reason for one in catalogue.absent if one.option_id == "as_observed")


def test_hbm_only_stands_in_its_place_where_nobody_knows(deployment: Deployment) -> None:
    ground = Ground(deployment=deployment, fleet=default_fleet(deployment, 2))
    assert absent(ground) == (
        "neither the logs nor the fleet file say what runs below HBM: HBM only stands in its "
        "place, as an assumption"
    )


def test_a_system_of_hbm_alone_is_no_second_option(deployment: Deployment, tmp_path: Path) -> None:
    fleet = fleet_of(deployment, tmp_path, '[instances]\nbelow_hbm = "nothing"\n')
    assert absent(Ground(deployment=deployment, fleet=fleet)) == "it is HBM only (fleet.toml)"


@pytest.mark.parametrize(
    ("below", "tiers", "title"),
    [
        ("host_dram", ["host_dram"], "As observed (host DRAM)"),
        ("local_ssd", ["host_dram", "local_nvme"], "As observed (host DRAM and local SSD)"),
        ("pool", ["pool"], "As observed (pool)"),
        ("host_dram_and_pool", ["host_dram", "pool"], "As observed (host DRAM and pool)"),
    ],
)
def test_what_is_stated_is_replayed_and_costs_nothing_more(
    deployment: Deployment, tmp_path: Path, below: str, tiers: list[str], title: str
) -> None:
    text = f'[instances]\nbelow_hbm = "{below}"\ndram_used = "300GiB"\n[pool]\ndram = "3TiB"\n'
    fleet = fleet_of(deployment, tmp_path, text)
    option = build_catalogue(Ground(deployment=deployment, fleet=fleet), is_full=False).by_id[
        "as_observed"
    ]
    assert [tier.tier_id for tier in option.scenario.tiers] == tiers
    sizes = {tier.tier_id: tier.capacity_bytes for tier in option.scenario.tiers}
    assert sizes.get("host_dram", 300 * GIB) == 300 * GIB
    assert sizes.get("pool", 3 * TIB) == 3 * TIB
    assert (option.scenario.title, option.need, option.family) == (title, Need(), "today")


def test_the_wire_of_today_is_that_of_the_fleet_file(
    deployment: Deployment, tmp_path: Path
) -> None:
    links = {}
    for wire in ("tcp", "rdma_direct"):
        text = f'[instances]\nbelow_hbm = "pool"\n[pool]\nwire_today = "{wire}"\n'
        fleet = fleet_of(deployment, tmp_path, text)
        option = find_option("as_observed", Ground(deployment=deployment, fleet=fleet))
        assert option is not None
        links[wire] = set(option.scenario.links)
    assert "pool_nic_tcp" in links["tcp"]
    assert "pool_nic_rdma" in links["rdma_direct"]


@pytest.mark.parametrize(("below", "is_rival"), [("host_dram", True), ("pool", False)])
def test_it_is_today_and_a_free_rival_unless_it_has_a_pool(
    deployment: Deployment, tmp_path: Path, below: str, is_rival: bool
) -> None:
    fleet = fleet_of(deployment, tmp_path, f'[instances]\nbelow_hbm = "{below}"\n')
    ground = Ground(deployment=deployment, fleet=fleet)
    asks = [Ask(float(i), [f"{i % 3}-{b}" for b in range(4)], output=4) for i in range(12)]
    trace = make_trace(asks, block_size=512)
    options = [find_option(one, ground) for one in ("hbm_only", "as_observed")]
    known = [one for one in options if one is not None]
    results = [simulate(trace, one.scenario) for one in known]
    fleets = build_fleets(trace, results, options=known)
    assert fleets.today is not None
    assert fleets.today.scenario.option_id == "as_observed"
    assert ("as_observed" in fleets.local_ids) is is_rival


def seen_in(log: str, tmp_path: Path, base: Fleet | None = None) -> Fleet:
    """The fleet, after a log of `tests/formats/data` was read."""
    dataset = ingest([DATA / log], output=tmp_path / "out").dataset
    deployment, settings = choose_deployment(resolve_settings(), dataset.manifest)
    setup = choose_fleet(settings, deployment, whole_trace(dataset), dataset.manifest)
    return with_observed(replace(setup, fleet=base or setup.fleet), dataset).fleet


@pytest.mark.parametrize(
    ("log", "below", "why"),
    [
        ("lmcache_text/good_engine.log", "host_dram", "1,472 cached tokens from host"),
        ("lmcache_text/good_server.log", "host_dram_and_pool", "768 cached tokens from remote"),
        ("mooncake_store/good_client.log", "pool", "3 samples (remote)"),
        ("sglang_text/good_requests.log", "local_ssd", "968 cached tokens from disk"),
        ("kv_events/capture.jsonl", "host_dram", "2 blocks stored there (host)"),
    ],
)
def test_logs_show_what_runs_below_hbm(log: str, below: str, why: str, tmp_path: Path) -> None:
    answer = seen_in(log, tmp_path).below_hbm
    assert (answer.value, answer.kind) == (below, "given")
    assert answer.source.startswith("logs: ")
    assert why in answer.source


def test_logs_that_show_no_tier_leave_an_assumption(tmp_path: Path) -> None:
    answer = seen_in("sglang_text/good_batches.log", tmp_path).below_hbm
    assert (answer.value, answer.kind) == ("nothing", "assumed")


def test_a_tier_that_no_log_names_is_not_replayed_and_said(tmp_path: Path) -> None:
    log = tmp_path / "engine.log"
    line = (DATA / "vllm_text/good_v1.log").read_text()
    assert "External prefix cache hit rate" in line
    log.write_text(line)
    answer = seen_in(str(log), tmp_path).below_hbm
    assert (answer.value, answer.kind) == ("nothing", "assumed")
    assert answer.source.startswith("the logs show a tier below HBM and do not name it (")


def test_sizes_that_engines_and_pools_print_are_taken(tmp_path: Path) -> None:
    fleet = seen_in("lmcache_text/good_server.log", tmp_path)
    used = fleet.dram_used_bytes_per_instance
    assert used is not None
    assert (used.value, used.kind) == (100 * GIB, "given")
    master = seen_in("mooncake_store/good_master.log", tmp_path / "master")
    assert master.pool_dram_bytes.kind == "given"
    assert master.pool_dram_bytes.source == "logs"


def test_what_somebody_stated_stands_against_the_logs(
    deployment: Deployment, tmp_path: Path
) -> None:
    stated = fleet_of(deployment, tmp_path, '[instances]\nbelow_hbm = "nothing"\n')
    answer = seen_in("lmcache_text/good_engine.log", tmp_path, stated).below_hbm
    assert (answer.value, answer.source) == ("nothing", "fleet.toml")
    draft = '[instances]\nbelow_hbm = "nothing"  # unconfirmed\n'
    open_answer = fleet_of(deployment, tmp_path, draft)
    answer = seen_in("lmcache_text/good_engine.log", tmp_path / "open", open_answer).below_hbm
    assert answer.value == "host_dram"
