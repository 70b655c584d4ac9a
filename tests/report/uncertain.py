"""A hand-made uncertainty of a verdict."""

from __future__ import annotations

from typing import Any

from kvtrace.audit.uncertainty.record import OpenInput, Spread, Uncertainty
from tests.report.records import quantity


def open_input(id: str, title: str, **changes: Any) -> OpenInput:
    values: dict[str, Any] = {
        "unit": "USD/GPU-hour",
        "low": 2.0,
        "value": 3.0,
        "high": 5.0,
        "distribution": "triangular",
        "source": "a price list",
        "kind": "measured",
        "net_at_low": -1_000.0,
        "net_at_high": 9_000.0,
    }
    return OpenInput(id=id, title=title, **(values | changes))


def make_uncertainty(**changes: Any) -> Uncertainty:
    """A pool that pays in three of four samples."""
    values: dict[str, Any] = {
        "option": "pool_dram_rdma_direct",
        "rival": "Idle host DRAM",
        "net_middle": 4_000.0,
        "p_pays": 0.75,
        "p_pays_error": 0.02,
        "threshold": quantity("p_pays", 0.9, "ratio"),
        "spreads": [
            Spread(
                id="value_minus_cost_usd_per_month",
                title="monthly value less cost of the pool",
                unit="USD/month",
                middle=4_000.0,
                p10=-2_000.0,
                p50=3_500.0,
                p90=8_000.0,
                p10_error=50.0,
                p90_error=60.0,
                method="surrogate",
                left_out_error=0.04,
                says="a fit to 40 replayed points; leave-one-out error 4.0 %",
            )
        ],
        "inputs": [
            open_input(
                "prices.gpu_usd_per_hour",
                "H100 <b>on demand</b>",
                switch_value=2.25,
                worth_usd_per_month=800.0,
                worth_error=12.0,
                settle="an offer",
                line="prices.gpu_usd_per_hour = 3",
            ),
            open_input(
                "fleet.dram_idle_bytes_per_instance",
                "free DRAM",
                unit="B",
                low=1e11,
                value=4e11,
                high=6e11,
                net_at_low=5_000.0,
                net_at_high=-500.0,
                switch_between=[4.5e11, 4.6e11],
                worth_usd_per_month=0.0,
                worth_error=0.0,
            ),
        ],
        "worth_of_all": 1_100.0,
        "replays": 280,
        "samples": 2048,
        "resampled": "sessions",
        "resampled_units": 812,
        "seed": 0,
        "notes": ["queues stay as replayed"],
    }
    return Uncertainty(**(values | changes))
