"""From how many tokens on a load pays in each replayed scenario, as values of engines' settings."""

from __future__ import annotations

from kvtrace.replay.result import ReplayResult
from kvtrace.replay.thresholds import (
    LENGTHS,
    TierThreshold,
    advice,
    break_even_load,
    replayed_thresholds,
    setting_values,
)


def threshold_documents(result: ReplayResult) -> list[dict[str, object]]:
    """One row per tier below HBM: break-evens by length, what the replay says, engines' settings.

    Tokens are null where no load pays.
    """
    scenario = result.scenario
    alone = advice(scenario)
    replayed = {one.tier_id: one for one in replayed_thresholds(result)}
    documents: list[dict[str, object]] = []
    for tier in scenario.tiers:
        looked_back = replayed[tier.tier_id]
        tokens, basis = recommended(looked_back, alone[tier.tier_id])
        documents.append(
            {
                "tier": tier.tier_id,
                "recommended_tokens": tokens,
                "basis": basis,
                "break_even": [
                    {
                        "prompt_tokens": length,
                        "tokens": break_even_load(scenario, tier, prompt_tokens=length),
                    }
                    for length in LENGTHS
                ],
                "replayed": {
                    "loads": looked_back.loads,
                    "tokens": looked_back.tokens,
                    "kept_loads": looked_back.kept_loads,
                    "gained_s": looked_back.gained_s,
                    "gained_without_s": looked_back.gained_without_s,
                },
                "settings": [
                    {
                        "engine": setting.engine,
                        "setting": setting.setting,
                        "place": setting.place,
                        "counts": setting.counts,
                        "default": setting.default,
                        "value": value,
                        "source": setting.source,
                    }
                    for setting, value in setting_values(tokens)
                ],
            }
        )
    return documents


def recommended(replayed: TierThreshold, empty_links: int | None) -> tuple[int | None, str]:
    """(tokens from which on to load, `replayed` or `empty_links`); None: do not load from it.

    A replay that has loads decides, since it has the queues. Where all of its loads together gain
    most, it says nothing of shorter ones: the break-even on empty links then goes below its least.
    """
    if not replayed.loads:
        return empty_links, "empty_links"
    is_of_all = replayed.kept_loads == replayed.loads
    if is_of_all and empty_links is not None and empty_links < (replayed.tokens or 0):
        return empty_links, "empty_links"
    return replayed.tokens, "replayed"
