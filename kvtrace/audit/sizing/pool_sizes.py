"""Three sizes of a pool, each with one name; used by the sizing section, findings and the verdict.

- *smallest pool that adds hits*: two points of the prompt tokens more than what it stands behind.
- *recommended size*: the size at which the price of the next GB exceeds its worth. The only one
  that is recommended; worked out by `sizing/pool_size`, 0 where no size is worth its price.
- *size that keeps nearly all hits*: all but two points of the prompt tokens of what an unlimited
  cache hits, whatever the price.

All of one LRU cache (idealised), by `sizing/pool_size`, which has its exact curve. In the record
they are bytes of a pool behind the larger of HBM and idle DRAM of all instances (each tier keeps
copies of those above it, as in the replays), without copies of what that holds. The verdict asks
for the smallest that adds hits to another option: `cache_that_adds`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from kvtrace.audit.inputs import ResultOfQuery
from kvtrace.audit.quantity import Quantity
from kvtrace.audit.record import CurvePoint
from kvtrace.audit.thresholds import LITTLE
from kvtrace.audit.uncertainty.sensitivity import blocks_for_ratio, curve_ratio
from kvtrace.audit.view import number, rows_of

SIZE_QUERY: Final = "sizing/pool_size"
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
    "one LRU cache behind the larger of HBM and idle DRAM of all instances, which holds what both "
    "do (idealised), without copies of that"
)


def cache_that_adds(curve: Sequence[CurvePoint], held_blocks: float) -> float | None:
    """Blocks of the smallest cache, all tiers together, that adds hits to one of `held_blocks`.

    Null: no size hits `LITTLE` of the prompt tokens more.
    """
    return blocks_for_ratio(curve, curve_ratio(curve, held_blocks) + LITTLE.value)


def nearly_all_cache_bytes(queries: Mapping[str, ResultOfQuery]) -> float | None:
    """Of the smallest cache, all tiers together, that keeps nearly all hits; null: no reuse."""
    rows = rows_of(queries, SIZE_QUERY)
    return number(rows[0], "nearly_all_cache_bytes") if rows else None


def pool_sizes(queries: Mapping[str, ResultOfQuery]) -> Iterator[Quantity]:
    """The three sizes, as the record holds them; what is unknown, or no size, is left out."""
    rows = rows_of(queries, SIZE_QUERY)
    first = rows[0] if rows else {}
    if (size := number(first, SMALLEST_ID)) is not None:
        yield _quantity(SMALLEST_ID, size, SMALLEST)
    for row in rows:
        medium = str(row["medium"])
        if (size := number(row, "best_bytes")) is not None:
            title = _RECOMMENDED.get(medium, f"recommended size, {medium}")
            yield _quantity(f"{RECOMMENDED_ID}:{medium}", size, title)
    if (size := number(first, NEARLY_ALL_ID)) is not None:
        yield _quantity(NEARLY_ALL_ID, size, NEARLY_ALL_HITS)


def _quantity(ident: str, value: float, title: str) -> Quantity:
    return Quantity(
        id=ident,
        value=value,
        unit="bytes",
        title=title,
        source=f"{SIZE_QUERY}: {_BEHIND}",
        kind="modelled",
        interval_reason="one trace; prices and worth at their middle",
    )
