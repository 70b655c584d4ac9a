"""The part of a hand-made record that says how large the fleet has to be."""

from __future__ import annotations

from kvtrace.audit.fleet.record import (
    Binding,
    Degraded,
    DegradedState,
    FleetSizes,
    FleetView,
    OptionNeed,
    SurrogateCheck,
)

LOADS = (1.0, 2.0, 4.0)


def make_need(option: str, load: float, instances: int | None, **changes: object) -> OptionNeed:
    """Searched by replays on GPUs of eight."""
    values: dict[str, object] = {
        "gpus": None if instances is None else 8 * instances,
        "basis": "none" if instances is None else "replayed",
        "at_least": instances or 11,
        "most": 10,
    }
    values.update(changes)
    return OptionNeed(option=option, load=load, instances=instances, **values)  # type: ignore[arg-type]


def make_state(state: str, within: int, **changes: object) -> DegradedState:
    """Of 6 000 requests."""
    values: dict[str, object] = {
        "requests": 6_000,
        "keeps_slo": within > 5_900,
        "carries_load": True,
        "hit_ratio_tokens": 0.34,
        "ttft_p99_s": 4.4,
    }
    values.update(changes)
    return DegradedState(state=state, within=within, **values)  # type: ignore[arg-type]


def make_fleets(**changes: object) -> FleetSizes:
    """HBM only needs five, the pool over RDMA four; the pool over TCP keeps no SLO at all."""
    values: dict[str, object] = {
        "slo": "no worse than today, per prompt bucket",
        "is_slo_stated": False,
        "reference": "HBM only",
        "instances": 5,
        "gpus_per_instance": 8,
        "is_searched": True,
        "requests": 12_031,
        "uncached_tokens": 108_590_468,
        "covers_a_day": False,
        "peak_factor": None,
        "within_today": 11_812,
        "needs": [
            *(make_need("hbm_only", load, round(5 * load)) for load in LOADS),
            *(make_need("pool_dram_rdma_direct", load, round(4 * load)) for load in LOADS),
            *(
                make_need(
                    "pool_dram_tcp",
                    load,
                    None,
                    is_infeasible=True,
                    floor_s=0.416,
                    allowed_s=0.359,
                    reason="no number of instances keeps the SLO",
                )
                for load in LOADS
            ),
        ],
        "binds": [
            Binding(
                option="hbm_only",
                instances=4,
                is_missed=True,
                binds="prefill",
                next="hbm_capacity",
                basis="relaxed",
                used={"prefill": 0.49, "decode": 0.09, "hbm_capacity": 0.09},
                why="with prefill compute free it is kept",
            ),
            Binding(
                option="pool_dram_tcp",
                instances=5,
                is_missed=True,
                binds="link:pool_nic_tcp",
                next="link:nic_tcp",
                basis="busiest",
                used={"prefill": 0.3, "link:pool_nic_tcp": 0.63, "link:nic_tcp": 0.51},
                why="the busiest is link pool_nic_tcp, 63 % in use",
            ),
        ],
        "views": [
            FleetView(
                option="pool_dram_rdma_direct",
                gpus=32,
                groups_saved=1.4,
                whole_groups_saved=1,
                within=11_902,
                requests=12_031,
                ttft_p99_s=4.98,
                load_at_slo=1.25,
                load_basis="replayed",
                reason="",
            )
        ],
        "surrogate": SurrogateCheck(checked=5, equal=3, most_over=1, most_under=0),
        "most_any_pool_saves": 2,
        "degraded": [
            Degraded(
                option="pool_dram_rdma_direct",
                instances=4,
                states=[
                    make_state("warm", 5_950),
                    make_state(
                        "released",
                        5_700,
                        rewarm_s=366.0,
                        is_rewarmed=True,
                        requests_rewarming=1_287,
                        within_rewarming=1_052,
                    ),
                    make_state("pool_down", 5_100),
                ],
                span_s=1_769.0,
                hot_share=0.75,
                pool_nodes=2,
                reserve_instances=4,
                reserve_at_slo=5,
                saved=1,
                saved_with_reserve=1,
                releases_per_month=4.0,
                cold_s_per_month=1_464.0,
                late_requests_per_month=1_000.0,
                recomputed_gpu_hours_per_month=0.7,
            )
        ],
    }
    values.update(changes)
    return FleetSizes(**values)  # type: ignore[arg-type]
