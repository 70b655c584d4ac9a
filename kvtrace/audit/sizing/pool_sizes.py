"""Three sizes of a pool, each with one name; used by the sizing section, findings and the verdict.

- *smallest pool that adds hits*: two points of the prompt tokens more than what it stands behind.
- *recommended size*: the size at which the price of the next GB exceeds its worth. The only one
  that is recommended; worked out by `sizing/pool_size`, 0 where no size is worth its price.
- *size that keeps nearly all hits*: all but two points of the prompt tokens of what an unlimited
  cache hits, whatever the price.

All by the capacity curve of one LRU cache (idealised). In the record they are bytes of a pool
behind HBM and idle DRAM of all instances, without copies of what these hold: `held` of its size.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kvtrace.audit.inputs import ResultOfQuery
from kvtrace.audit.quantity import Quantity
from kvtrace.audit.record import CurvePoint
from kvtrace.audit.thresholds import LITTLE
from kvtrace.audit.uncertainty.sensitivity import blocks_for_ratio, curve_ratio
from kvtrace.audit.view import number, rows_of

SIZE_QUERY: Final = "sizing/pool_size"
CURVE_QUERY: Final = "reuse/capacity_curve"
SMALLEST_ID: Final = "smallest_that_adds_bytes"
RECOMMENDED_ID: Final = "recommended_bytes"
NEARLY_ALL_ID: Final = "nearly_all_bytes"
SMALLEST: Final = "smallest pool that adds hits"
NEARLY_ALL_HITS: Final = "size that keeps nearly all hits"
_RECOMMENDED: Final = {
    "pool_dram": "recommended size, DRAM: the price of the next GB exceeds its worth",
    "pool_ssd": "recommended size, flash: the price of the next GB exceeds its worth",
}
_BEHIND: Final = (
    "one LRU cache behind HBM and idle DRAM of all instances (idealised), without copies of what "
    "these hold"
)


def cache_that_adds(curve: Sequence[CurvePoint], held_blocks: float) -> float | None:
    """Blocks of the smallest cache, all tiers together, that adds hits to one of `held_blocks`.

    Null: no size hits `LITTLE` of the prompt tokens more.
    """
    return blocks_for_ratio(curve, curve_ratio(curve, held_blocks) + LITTLE.value)


def cache_of_nearly_all(curve: Sequence[CurvePoint]) -> float | None:
    """Blocks of the smallest cache, all tiers together, that keeps nearly all hits.

    Null: there is no curve, or no hit worth keeping.
    """
    most = max((point.hit_ratio_tokens or 0.0 for point in curve), default=0.0)
    return blocks_for_ratio(curve, most - LITTLE.value) if most > LITTLE.value else None


@dataclass(frozen=True, slots=True)
class PoolSizes:
    """Bytes of a pool behind what is held above it; null: unknown, or no such size."""

    smallest_that_adds: float | None
    recommended: Mapping[str, float]
    """By medium, of those whose price and worth are known."""
    nearly_all: float | None

    def quantities(self) -> Iterator[Quantity]:
        """Those that are known, as the record holds them."""
        if self.smallest_that_adds is not None:
            yield _quantity(SMALLEST_ID, self.smallest_that_adds, SMALLEST, CURVE_QUERY)
        for medium, size in self.recommended.items():
            title = _RECOMMENDED.get(medium, f"recommended size, {medium}")
            yield _quantity(f"{RECOMMENDED_ID}:{medium}", size, title, SIZE_QUERY)
        if self.nearly_all is not None:
            yield _quantity(NEARLY_ALL_ID, self.nearly_all, NEARLY_ALL_HITS, CURVE_QUERY)


def pool_sizes(queries: Mapping[str, ResultOfQuery], curve: Sequence[CurvePoint]) -> PoolSizes:
    """The three sizes, behind `held_bytes` of `sizing/pool_size`."""
    rows = rows_of(queries, SIZE_QUERY)
    held = number(rows[0], "held_bytes") if rows else None
    block = next((p.capacity_bytes / p.capacity_blocks for p in curve if p.capacity_bytes), None)
    recommended = {
        str(row["medium"]): size for row in rows if (size := number(row, "best_bytes")) is not None
    }
    if held is None or block is None:
        return PoolSizes(None, recommended, None)

    def behind(blocks: float | None) -> float | None:
        return None if blocks is None else max(blocks * block - held, 0.0)

    return PoolSizes(
        behind(cache_that_adds(curve, held / block)),
        recommended,
        behind(cache_of_nearly_all(curve)),
    )


def _quantity(ident: str, value: float, title: str, query: str) -> Quantity:
    return Quantity(
        id=ident,
        value=value,
        unit="bytes",
        title=title,
        source=f"{query}: {_BEHIND}",
        kind="modelled",
        interval_reason="one trace; prices and worth at their middle",
    )
