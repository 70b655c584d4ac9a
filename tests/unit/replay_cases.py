"""Hand-made traces and scenarios for the tests of the replay."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from kvtrace.replay.scenario import LinkSpec, Scenario, StageSpec, TierSpec
from kvtrace.schema.arrays import IntArray, RequestTrace
from kvtrace.units import NS_PER_S

KV_BYTES = 2.0
"""Bytes of KV per token in the hand-made scenarios."""
UNLIMITED = float("inf")


@dataclass(frozen=True, slots=True)
class PerToken:
    """A prefill that takes the same time for each new token."""

    token_s: float = 0.01
    pair_s: float = 0.0

    def prefill_s(self, new_tokens: float, cached_tokens: float) -> float:
        return new_tokens * self.token_s + self.pair_s * new_tokens * cached_tokens


@dataclass(frozen=True, slots=True)
class FlatStep:
    """A decode step that takes the same time for each batch, plus some per sequence and token."""

    fixed_s: float = 0.1
    sequence_s: float = 0.0
    context_s: float = 0.0

    def step_s(self, batch: float, context_tokens: float) -> float:
        return self.fixed_s + self.sequence_s * batch + self.context_s * context_tokens


@dataclass(frozen=True, slots=True)
class Ask:
    """One request: labels of its blocks, and what is not derived from them."""

    at_s: float
    blocks: Sequence[Hashable] = ()
    prompt: int | None = None
    """None: all blocks are full."""
    output: int = 0


def make_trace(
    asks: Sequence[Ask],
    *,
    block_size: int = 10,
    output_known: bool = True,
    has_clock: bool = True,
    resolution_ns: int = 1,
) -> RequestTrace:
    """A trace with dense ids by first appearance, and maximal runs."""
    ids: dict[Hashable, int] = {}
    starts: list[int] = []
    lengths: list[int] = []
    offset = [0]
    for ask in asks:
        last = None
        for label in ask.blocks:
            block = ids.setdefault(label, len(ids))
            if last is not None and block == last + 1:
                lengths[-1] += 1
            else:
                starts.append(block)
                lengths.append(1)
            last = block
        offset.append(len(starts))
    prompts = [len(a.blocks) * block_size if a.prompt is None else a.prompt for a in asks]
    return RequestTrace(
        request_key=ints(range(len(asks))),
        arrived_at_ns=ints(round(a.at_s * NS_PER_S) for a in asks),
        prompt_tokens=ints(prompts),
        output_tokens=ints(a.output for a in asks),
        session=ints(-1 for _ in asks),
        run_offset=ints(offset),
        run_start=ints(starts),
        run_blocks=ints(lengths),
        block_size_tokens=block_size,
        distinct_blocks=len(ids),
        has_clock=has_clock,
        output_known=output_known,
        clock_resolution_ns=resolution_ns,
    )


def ints(values: object) -> IntArray:
    return np.array(list(values), dtype=np.int64)  # type: ignore[call-overload]


def make_scenario(**changes: object) -> Scenario:
    """One instance, unlimited HBM, 0.01 s per token, no tiers."""
    base = Scenario(
        option_id="test",
        title="Test",
        instances=1,
        kv_bytes_per_token=KV_BYTES,
        hbm_capacity_bytes=UNLIMITED,
        tiers=(),
        links={},
        prefill=PerToken(),
        decode=FlatStep(),
    )
    return replace(base, **changes)  # type: ignore[arg-type]


def links(**rates: float) -> dict[str, LinkSpec]:
    """Links by id; ids that start with `pool` are shared, others are per instance."""
    return {
        name: LinkSpec(name, "shared" if name.startswith("pool") else "instance", rate)
        for name, rate in rates.items()
    }


def pool_tier(
    *,
    capacity_bytes: float = UNLIMITED,
    lookup_s: float = 0.0,
    pull_latency_s: float = 0.0,
    load_latency_s: float = 0.0,
) -> TierSpec:
    """A shared pool: pull over `nic` and `pool`, then load over `pcie`; writes the other way."""
    pull = StageSpec("pull", ("nic", "pool"), pull_latency_s)
    load = StageSpec("load", ("pcie",), load_latency_s)
    return TierSpec("pool", "shared", capacity_bytes, lookup_s, (pull, load), (load, pull))


def dram_tier(*, capacity_bytes: float = UNLIMITED, lookup_s: float = 0.0) -> TierSpec:
    """Private host DRAM behind `pcie`."""
    load = StageSpec("load", ("pcie",), 0.0)
    return TierSpec("host_dram", "instance", capacity_bytes, lookup_s, (load,), (load,))
