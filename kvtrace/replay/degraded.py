"""A pooled scenario when its pool is not what it should be."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from kvtrace.replay.scenario import Scenario
from kvtrace.replay.window import WindowedTrace


def without_pool(scenario: Scenario) -> Scenario:
    """The tiers that instances share are gone, with their links; all else stays."""
    tiers = tuple(tier for tier in scenario.tiers if tier.scope != "shared")
    used = {
        link for tier in tiers for stage in (*tier.read, *tier.write) for link in stage.link_ids
    }
    kept = {name: link for name, link in scenario.links.items() if name in used}
    return replace(scenario, tiers=tiers, links=kept, throttles=())


def with_cold_pool(scenario: Scenario) -> Scenario:
    """The tiers that instances share begin empty, as after a restart."""
    tiers = tuple(
        replace(tier, starts_cold=True) if tier.scope == "shared" else tier
        for tier in scenario.tiers
    )
    return replace(scenario, tiers=tiers)


def with_hot_node(scenario: Scenario, *, nodes: int, share: float) -> Scenario:
    """One of `nodes` serves `share` of what crosses the links that instances share.

    Formula: rate · min(1, 1 / (nodes · share)): all traffic passes no faster than the hot node lets
    its part pass.
    """
    factor = hot_rate_share(nodes, share)
    slower = {
        name: replace(link, bytes_per_s=factor * link.bytes_per_s)
        if link.scope == "shared"
        else link
        for name, link in scenario.links.items()
    }
    return replace(scenario, links=slower)


def with_part_of_pool(scenario: Scenario, share: float) -> Scenario:
    """What instances share has `share` of its capacity and of its rate, as without some nodes."""
    tiers = tuple(
        replace(tier, capacity_bytes=share * tier.capacity_bytes)
        if tier.scope == "shared"
        else tier
        for tier in scenario.tiers
    )
    links = {
        name: replace(link, bytes_per_s=share * link.bytes_per_s)
        if link.scope == "shared"
        else link
        for name, link in scenario.links.items()
    }
    return replace(scenario, tiers=tiers, links=links)


def hot_rate_share(nodes: int, share: float) -> float:
    """Of the rate of all nodes, what passes where one of `nodes` serves `share` of the traffic."""
    return min(1.0, 1.0 / (max(nodes, 1) * share))


def cold_window(windowed: WindowedTrace) -> WindowedTrace:
    """The window if what came before it is at least half as long, else the later half of all.

    So that caches are warm at its start, unless they are made to be cold.
    """
    arrived = windowed.trace.arrived_at_ns
    if not windowed.trace.requests:
        return windowed
    begin, last = int(arrived[min(windowed.first, len(arrived) - 1)]), int(arrived[-1])
    if windowed.first and 2 * begin >= last - begin:
        return windowed
    return WindowedTrace(windowed.trace, int(np.searchsorted(arrived, last / 2)))
