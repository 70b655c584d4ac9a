"""From how many tokens on a load pays in each replayed scenario, as values of engines' settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from kvtrace.api.texttable import text_table
from kvtrace.replay.result import ReplayResult
from kvtrace.replay.thresholds import (
    LENGTHS,
    TierThreshold,
    advice,
    break_even_load,
    replayed_thresholds,
    setting_values,
)
from kvtrace.report.format import safe_text

_NEVER: Final = "never"


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


def threshold_lines(scenarios: Sequence[Mapping[str, object]]) -> list[str]:
    """A table by tier and length, and a line a tier with the settings; nothing without tiers."""
    rows, settings = [], []
    for scenario in scenarios:
        for tier in _rows(scenario.get("thresholds")):
            name = (scenario["scenario"], tier["tier"])
            (replayed,) = _rows([tier["replayed"]])
            rows.append(
                (
                    *name,
                    *(_tokens(one["tokens"]) for one in _rows(tier["break_even"])),
                    _tokens(replayed["tokens"]) if replayed["loads"] else "no loads",
                    _tokens(tier["recommended_tokens"]),
                )
            )
            settings.append(safe_text(f"{name[0]}, {name[1]}: {_settings(tier)}"))
    if not rows:
        return []
    header = ("loads pay from (modelled)", "tier", *(f"prompt {one:,}" for one in LENGTHS),
              "in this replay", "recommended")  # fmt: skip
    return ["", text_table(header, rows), "", *settings]


def _settings(tier: Mapping[str, object]) -> str:
    if tier["recommended_tokens"] is None:
        return (
            "no threshold pays; do not load from it, or only what an arbiter prices below prefill"
        )
    return " · ".join(
        f"{one['engine']} {one['setting']} = {one['value']}" for one in _rows(tier["settings"])
    )


def _rows(value: object) -> list[dict[str, object]]:
    return value if isinstance(value, list) else []


def _tokens(tokens: object) -> str:
    return _NEVER if tokens is None else f"{tokens:,}"
