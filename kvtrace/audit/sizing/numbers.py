"""Sizes, ports and the worth of a token, from the rows of the queries."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from kvtrace.audit.inputs import ResultOfQuery
from kvtrace.audit.quantity import Quantity
from kvtrace.audit.sizing.pool_sizes import pool_sizes
from kvtrace.audit.sizing.worth import ReuseValue
from kvtrace.audit.view import Row, number, rows_of

TRAFFIC_QUERY: Final = "sizing/pool_traffic"
WORTH_ID: Final = "usd_per_reused_token"


def sizing_numbers(
    queries: Mapping[str, ResultOfQuery], value: ReuseValue | None
) -> list[Quantity]:
    """The three sizes of a pool, ports of each of its nodes, and the worth of a token.

    What is unknown is left out.
    """
    return [
        *pool_sizes(queries),
        *_ports(rows_of(queries, TRAFFIC_QUERY)),
        *_worth(value),
    ]


def _worth(value: ReuseValue | None) -> Iterator[Quantity]:
    """What all the money of this part follows from."""
    if value is None:
        return
    kind = "reusable tokens" if value.is_of_reuse else "prompt tokens, for no reuse is known"
    tokens = f"mean of {value.tokens:,} {kind}"
    yield value.gpu_s_per_token.modelled(
        "gpu_s_per_reused_token",
        "GPU-seconds",
        "GPU time that one reused token frees",
        f"prefill of the cost model, {tokens}; low and high: GEMM efficiency",
    )
    if value.usd_per_token is not None:
        yield value.usd_per_token.modelled(
            WORTH_ID,
            "USD",
            "what that GPU time is worth, by the second",
            "GPU-seconds x worth of a GPU-second by contract / busy share of the fleet",
        )


def _ports(rows: list[Row]) -> Iterator[Quantity]:
    known = [int(n) for row in rows if (n := number(row, "ports_per_node")) is not None]
    if known:
        yield _exact(
            "ports_per_node",
            max(known),
            "ports",
            "ports of each pool node that the P99 minute of its busier direction needs",
            f"{TRAFFIC_QUERY}: a pool of the fleet's size and nodes; usable rate and limit of use",
        )


def _exact(ident: str, value: float, unit: str, title: str, source: str) -> Quantity:
    return Quantity(
        id=ident,
        value=value,
        unit=unit,
        title=title,
        source=source,
        kind="modelled",
        interval_reason="one trace; prices and worth at their middle",
    )
