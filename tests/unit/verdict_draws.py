"""Random cases of the verdict: half of them lean to a pool that pays."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TypeVar

from hypothesis import strategies as st

from kvtrace.audit.record import NextMeasurement
from kvtrace.audit.uncertainty.ranges import Range
from kvtrace.audit.verdict.cases import Bound, Case, Chance, PoolCase
from kvtrace.schema.manifest import Grade

NUMBERS = (0.0, 0.3, 0.99, 1.0, 2.5, 900.0, 20_000.0, 70_000.0)
GRADES: tuple[Grade, ...] = ("A", "A", "A", "B", "C", "L")
T = TypeVar("T")


class Draws(random.Random):
    """Parts of a case from a seed: a case has some sixty, too many to be drawn one by one.

    Half of the cases lean to a pool that pays: each premise then holds in nineteen of twenty.
    """

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.lean = self.choice([0.0, 0.95])

    def of(self, premise: T, *others: T) -> T:
        return premise if self.random() < self.lean else self.choice([premise, *others])

    def flag(self) -> bool:
        return self.random() < 0.5

    def range(self) -> Range:
        return Range(*sorted(self.choices(NUMBERS, k=3)))

    def range_of(self, premise: Range) -> Range:
        return self.of(premise, self.range())

    def bound(self) -> Bound:
        return Bound(instances=self.range(), saving=self.range(), what="free", is_peak=self.flag())

    def pool(self) -> PoolCase:
        is_feasible = self.of(True, False)
        is_replayed = self.of(True, False)
        instances = self.range_of(Range(1.0, 1.0, 2.5))
        saving = self.range_of(Range(20_000.0, 20_000.0, 70_000.0))
        if not is_replayed or instances.low < 1:  # only whole instances, replayed, are money
            saving = replace(saving, low=0.0)
        return PoolCase(
            option_id=self.choice(["pool_a", "pool_b"]),
            title="a pool",
            extra_hit_tokens=self.of(50_000, -5, 0, 10),
            saving=saving,
            unrounded_saving_usd=self.choice(NUMBERS),
            cost=self.range_of(Range(2.5, 900.0, 900.0)),
            instances_saved=instances,
            is_no_slower=is_feasible and self.of(True, False),  # overload keeps no SLO
            slowdown="p99 1 s against 2 s",
            tail_s=self.choice(NUMBERS),
            net_negative_share=self.of(0.0, None, 0.49, 0.5, 1.0),
            path_bytes_per_s=self.of(1e9, None, 0.0),
            break_even_bytes_per_s=self.of(1e8, None, 1e10),
            freed=self.choice([None, self.range()]),
            is_saving_replayed=is_replayed,
            worst_excess=self.of("", "TTFT p90 is longer by 3 ms"),
            is_feasible=is_feasible,
        )

    def case(self) -> Case:
        grade = self.of(*GRADES)
        return Case(
            grade=grade,
            requests=self.of(1000, 0, 999, 50_000),
            span_s=self.of(3_300.0, None, 10.0, 3_299.0, 90_000.0),
            prompt_tokens=self.of(100_000, None, 0),
            reusable_tokens=self.of(60_000, None, 0) if grade == "A" else None,
            all_prefill=self.choice([None, self.bound()]),
            all_reuse=self.choice([None, self.bound()]),
            lowest_pool_cost=self.choice([None, self.range()]),
            smallest_pool_cost=self.choice([None, self.range()]),
            chance=self.of(Chance(pays=0.95, samples=4_096), None, Chance(pays=0.5, samples=64)),
            rival_title=self.choice([None, "Idle DRAM"]),
            rival_hit_tokens=self.of(0, None, 60_000),
            hbm_hit_tokens=self.of(0, None, 60_000),
            prefill_utilisation=self.of(0.5, None, 0.0, 0.49, 1.0),
            pools=tuple(self.pool() for _ in range(self.of(2, 0, 1, 3))),
            unconfirmed=self.of((), ("llm",)),
            next_measurement=NextMeasurement(question="q", flag="--f", hours=1, settles="s"),
            gpu_usd_per_hour=self.of(Range(2, 3, 5), None),
            unreplayed_rivals=self.of((), ("routing",)),
            trace_reusable_tokens=self.of(80_000, None, 0),
            is_history_known=self.of(True, False),
            is_cold=self.of(False, True),
            is_overloaded=self.of(False, True),
            is_pool_needed=self.flag(),
            is_fewer_kept=self.flag(),
        )


def cases() -> st.SearchStrategy[Case]:
    return st.integers(0, 2**32 - 1).map(lambda seed: Draws(seed).case())
