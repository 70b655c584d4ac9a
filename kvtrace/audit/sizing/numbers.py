"""The recommended sizes, from the rows of the queries."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from kvtrace.audit.inputs import ResultOfQuery
from kvtrace.audit.quantity import Quantity
from kvtrace.audit.sizing.worth import ReuseValue
from kvtrace.audit.view import Row, number, rows_of

SIZE_QUERY: Final = "sizing/pool_size"
TRAFFIC_QUERY: Final = "sizing/pool_traffic"
WORTH_ID: Final = "usd_per_reused_token"
_TITLES: Final = {
    "pool_dram": "DRAM of a pool beyond which a GB costs more than its hits are worth",
    "pool_ssd": "flash of a pool beyond which a GB costs more than its hits are worth",
}
_ONE_CURVE: Final = (
    "one LRU cache behind HBM and idle DRAM of all instances (idealised); at the middle of prices "
    "and of a token's worth"
)


def recommended(queries: Mapping[str, ResultOfQuery], value: ReuseValue | None) -> list[Quantity]:
    """Bytes by medium, the knee, ports of each pool node, and the worth of a token.

    What is unknown is left out.
    """
    sizes = rows_of(queries, SIZE_QUERY)
    return [
        *_sizes(sizes),
        *_knee(sizes),
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


def _sizes(rows: list[Row]) -> Iterator[Quantity]:
    for row in rows:
        best, medium = number(row, "best_bytes"), str(row["medium"])
        if best is not None:
            yield _exact(
                f"best_bytes:{medium}",
                best,
                "bytes",
                _TITLES.get(medium, medium),
                f"{SIZE_QUERY}: {_ONE_CURVE}",
            )


def _knee(rows: list[Row]) -> Iterator[Quantity]:
    knee = number(rows[0], "knee_bytes") if rows else None
    if knee is not None:
        yield _exact(
            "knee_bytes",
            knee,
            "bytes",
            "pool at the knee of the curve: most hits for its bytes, whatever the price",
            f"{SIZE_QUERY}: {_ONE_CURVE}",
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
