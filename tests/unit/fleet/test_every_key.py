"""Every key of a fleet file changes a number of an audit, or says that it is shown only."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import date
from pathlib import Path
from typing import Final

import msgspec
import numpy as np
import pytest

from kvtrace.api.degraded import _pool_nodes  # what a lost node takes, by place
from kvtrace.api.setup import choose_deployment, choose_fleet
from kvtrace.audit.fleet.facts import DegradedFacts
from kvtrace.audit.fleet.states import build_degraded
from kvtrace.audit.money.gpu_worth import gpu_worth
from kvtrace.audit.slo.fleets import Fleets, Saved
from kvtrace.audit.slo.limits import limits_of
from kvtrace.audit.slo.reference import reference_of
from kvtrace.config import Setting, resolve_settings
from kvtrace.cost.deployment import Deployment
from kvtrace.cost.fleet import Fleet
from kvtrace.cost.fleet.keys import Key, fleet_keys
from kvtrace.cost.tco.build import build_bill
from kvtrace.cost.tco.need import Need
from kvtrace.cost.tco.traffic import Traffic
from kvtrace.replay.engine import simulate
from kvtrace.replay.options.catalogue import build_catalogue, find_option
from kvtrace.replay.options.ground import Ground
from kvtrace.schema.manifest import SourceEntry
from kvtrace.units import GB, TB
from tests.unit.test_degraded import TRACE, hbm_only

OPTIONS: Final = (
    "as_observed",
    "dram_idle",
    "dram_bought",
    "local_nvme",
    "pool_dram_tcp",
    "pool_dram_rdma_direct",
    "pool_peer_tcp",
    "pool_ssd_rdma_bounce",
    "pool_managed_tcp",
)
EVERYTHING: Final = Need(
    gpu_node_dram_bytes=TB,
    idle_dram_bytes=TB,
    gpu_node_ssd_bytes=TB,
    gpu_node_ports=8,
    pool_nodes=2,
    pool_dram_bytes=4 * TB,
    pool_ssd_bytes=30 * TB,
    pool_ports=4,
    appliance_bytes=100 * TB,
    appliance_bytes_per_s=50 * GB,
    managed_cache_bytes=2 * TB,
    object_store_bytes=10 * TB,
    is_operated=True,
)
MOVED: Final = Traffic(
    read_bytes_per_day=500 * TB,
    written_bytes_per_day=200 * TB,
    flash_written_bytes_per_day=2_000 * TB,
)
BASE: Final = {
    "instances.count": "4",
    "instances.tp": "4",
    "instances.below_hbm": '"host_dram"',
    "network.is_built": "false",
    "gpu_nodes.nvme_free": '"7TB"',
}
"""Of every file here, where the key itself says nothing else."""
BESIDE: Final[Mapping[str, Mapping[str, str | None]]] = {
    "pool.cross_zone_share": {"pool.purchase": '"rented"'},
    "pool.wire_today": {"instances.below_hbm": '"pool"'},
    "gpu_contract.until": {"gpu_contract.kind": '"reserved"'},
    "prices.gpu_purchase_months_of_rent": {"gpu_contract.kind": '"owned"'},
    "prices.nic_100g_usd": {"pool.port_rate": '"100Gb/s"'},
    "prices.nic_800g_usd": {"pool.port_rate": '"800Gb/s"'},
    "instances.nvme_free": {"gpu_nodes.nvme_free": None},
    "gpu_nodes.nvme_free": {"gpu_nodes.nvme_free": None},
    **{
        f"prices.{name}": {"pool.purchase": '"rented"', "pool.cross_zone_share": "0.5"}
        for name in (
            "cloud_node_usd_per_hour",
            "cloud_node_dram_gib",
            "cloud_node_dram_share",
            "cloud_ssd_usd_per_gb_month",
            "cross_zone_usd_per_gb",
        )
    },
}
"""What else has to be stated for a key to matter; null: nothing is."""
VALUES: Final = {
    "instances.count": "5",
    "instances.tp": "8",
    "instances.pp": "2",
    "instances.dp": "2",
    "instances.ep": "2",
    "instances.below_hbm": '"local_ssd"',
    "network.is_built": "true",
    "pool.purchase": '"rented"',
    "pool.wire_today": '"tcp"',
    "gpu_contract.kind": '"owned"',
    "gpu_contract.until": "2020-01-01",
    "tenants.sharing": '"tenant"',
    "slo.share": "0.5",
    "prices.managed_cache_share": "0.2",
    "prices.cloud_node_dram_share": "0.2",
    "prices.managed_cache_node_gib": "100",
    "prices.cloud_node_dram_gib": "100",
    "gpu_nodes.gpus": "4",
}
BY_KIND: Final = {
    "whole": "3",
    "number": "3.7",
    "share": "0.25",
    "bytes": '"345GiB"',
    "rate": '"33Gb/s"',
    "duration": '"777ms"',
}


class NoLogs:
    """Sources of a service whose logs say nothing."""

    sources: tuple[SourceEntry, ...] = ()


def written(tmp_path: Path, answers: Mapping[str, str | None]) -> Path:
    sections: dict[str, list[str]] = {}
    for path, text in answers.items():
        section, name = path.split(".")
        if text is not None:
            sections.setdefault(section, []).append(f"{name} = {text}")
    file = tmp_path / "fleet.toml"
    file.write_text("\n".join(f"[{s}]\n" + "\n".join(rows) for s, rows in sections.items()))
    return file


def numbers(file: Path) -> tuple[object, ...]:
    """What an audit makes of the file, without its replays."""
    settings = resolve_settings().replaced(
        {
            "fleet": Setting("fleet", str(file), "flag"),
            "llm": Setting("llm", "Mixtral-8x7B", "flag"),
            "hardware": Setting("hardware", "H100-SXM5", "flag"),
        }
    )
    deployment, settings = choose_deployment(settings, NoLogs())
    fleet = choose_fleet(settings, deployment, None, NoLogs()).fleet
    return (*_options(deployment, fleet), *_money(fleet), *_judged(fleet))


def _options(deployment: Deployment, fleet: Fleet) -> Iterator[object]:
    ground = Ground(deployment=deployment, fleet=fleet)
    yield deployment.hbm_cache_bytes
    for ident in OPTIONS:
        option = find_option(ident, ground)
        if option is None:
            yield None
            continue
        scenario = option.scenario
        yield scenario.tiers, scenario.links, scenario.instances, scenario.hbm_capacity_bytes
        yield scenario.prefill.prefill_s(4_000.0, 0.0), scenario.stages, option.need
        yield _pool_nodes(option, ground)


def _money(fleet: Fleet) -> Iterator[object]:
    bill = build_bill(EVERYTHING, fleet, traffic=MOVED)
    yield [(one.id, one.quantity, one.usd_per_month) for one in bill.lines]
    yield bill.kg_co2_per_month, bill.idle_dram_at_cost
    worth = gpu_worth(fleet, today=date(2026, 1, 1))
    yield worth.kind, worth.instance_usd_per_month, worth.paid_until
    yield fleet.gpus, fleet.gpu_nodes


def _judged(fleet: Fleet) -> Iterator[object]:
    result = simulate(TRACE, hbm_only())
    limits = limits_of(TRACE, fleet.slo, reference_of(TRACE, result))
    yield [np.asarray(one).tolist() for one in (limits.ttft_s, limits.tpot_s, limits.e2e_s)]
    yield fleet.slo.share
    yield Fleets({}, None, reserves={"pool_dram_tcp": 3}, spare=fleet.spare_count).reserve(
        "pool_dram_tcp"
    )
    facts = DegradedFacts(
        option_id="pool_dram_tcp",
        instances=2,
        states=(),
        span_s=1.0,
        hot_share=0.75,
        pool_nodes=2,
        reserve_instances=2,
        reserve_at_slo=2,
        replays=0,
    )
    yield msgspec.to_builtins(build_degraded(facts, Saved(0, True, ""), fleet))
    yield None if fleet.peak_factor is None else fleet.peak_factor.value


@pytest.mark.parametrize("key", fleet_keys().values(), ids=lambda key: key.path)
def test_a_key_changes_a_number_or_is_shown_only(key: Key, tmp_path: Path) -> None:
    beside: dict[str, str | None] = {**BASE, **BESIDE.get(key.path, {})}
    text = VALUES.get(key.path) or BY_KIND[key.reads]
    before = numbers(written(tmp_path, beside))
    after = numbers(written(tmp_path, {**beside, key.path: text}))
    assert (before == after) is key.is_shown_only


def test_what_is_shown_only_is_told_in_the_settings() -> None:
    page = (Path(__file__).parents[3] / "docs" / "settings.md").read_text()
    for key in fleet_keys().values():
        if key.is_shown_only:
            assert f"`{key.path}`, which is shown only" in page


def ranks(tmp_path: Path, **count: int) -> dict[str, tuple[object, ...]]:
    """By option: instances, stages, HBM and prefill seconds of one instance, as it is replayed."""
    stated = {"instances.count": "4", "instances.tp": "4"}
    stated |= {f"instances.{name}": str(value) for name, value in count.items()}
    settings = resolve_settings().replaced(
        {
            "fleet": Setting("fleet", str(written(tmp_path, stated)), "flag"),
            "llm": Setting("llm", "Mixtral-8x7B", "flag"),
            "hardware": Setting("hardware", "H100-SXM5", "flag"),
        }
    )
    deployment, settings = choose_deployment(settings, NoLogs())
    fleet = choose_fleet(settings, deployment, None, NoLogs()).fleet
    catalogue = build_catalogue(Ground(deployment=deployment, fleet=fleet), is_full=False)
    return {
        one.option_id: (
            one.scenario.instances,
            one.scenario.stages,
            one.scenario.hbm_capacity_bytes,
            one.scenario.prefill.prefill_s(4_000.0, 0.0),
        )
        for one in catalogue.options
        if one.family != "hardware"
    }


@pytest.mark.parametrize("rank", ["tp", "pp", "dp", "ep"])
def test_the_layout_of_the_fleet_file_reaches_the_replay_of_every_option(
    rank: str, tmp_path: Path
) -> None:
    before, after = ranks(tmp_path), ranks(tmp_path, **{rank: 8 if rank == "tp" else 2})
    assert set(before) == set(after)
    for ident, (instances, stages, hbm, prefill_s) in after.items():
        was = before[ident]
        # Two groups an instance; a stage is a replayed part; the others change times and room.
        assert instances == (2 if rank == "dp" else 1) * 4
        assert stages == (2 if rank == "pp" else 1)
        assert (hbm, prefill_s) != was[2:]
