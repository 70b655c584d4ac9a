"""What serves the traffic: from settings, else from the logs, else a default that stays marked."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kvtrace.audit.inputs import HARMLESS_SETTINGS, SettingValue
from kvtrace.config import Setting, Settings, Value
from kvtrace.cost.deployment import Deployment, build_deployment
from kvtrace.cost.fleet import Fleet, default_fleet
from kvtrace.cost.hardware import HardwareProfile, load_hardware
from kvtrace.cost.llm import LlmShape, load_llm
from kvtrace.errors import UsageError
from kvtrace.replay.window import peak_window, size_fleet
from kvtrace.schema.arrays import RequestTrace
from kvtrace.schema.manifest import Manifest, SourceEntry

DEFAULT_LLM: Final = "Meta-Llama-3.1-70B"
DEFAULT_HARDWARE: Final = "H100-SXM5"
TARGET_UTILISATION: Final = 0.6
"""Busy share of the GPUs in the peak hour that an unstated fleet is sized for, recomputing every
prompt: queues stay short below it. An assumption, shown as one."""
FROM_LOGS: Final = "logs"
_ROLE_ORDER: Final = ("headline", "joined", "beside")


@dataclass(frozen=True, slots=True)
class Setup:
    """The model that everything is priced with, and where each part of it came from."""

    deployment: Deployment
    fleet: Fleet
    settings: tuple[SettingValue, ...]


def choose_deployment(settings: Settings, manifest: Manifest) -> tuple[Deployment, Settings]:
    """The deployment and the settings with what the logs said filled in.

    Raises:
        UsageError: a name that the user gave is not known.
        ModelError: the weights do not fit the GPUs.
    """
    told = _told_by_logs(manifest)
    llm, llm_setting = _choose_llm(settings, told)
    hardware, hardware_setting = _choose_hardware(settings, told)
    tp_setting = _choose_tp(settings, told, llm_setting)
    weight = settings.text("weight_dtype")
    deployment = build_deployment(
        llm,
        hardware,
        tp=None if tp_setting.value is None else int(tp_setting.value),
        weight_dtype=None if settings["weight_dtype"].is_default else weight,
        kv_dtype=settings.text("kv_dtype") or "bf16",
    )
    chosen = {
        "llm": llm_setting,
        "hardware": hardware_setting,
        "tp": _filled(tp_setting, deployment.tp),
        "weight_dtype": _filled(settings["weight_dtype"], deployment.weight_dtype),
    }
    return deployment, settings.replaced(chosen)


def choose_fleet(
    settings: Settings, deployment: Deployment, trace: RequestTrace | None, manifest: Manifest
) -> Setup:
    """The fleet: instances as stated, else as the logs show, else sized for the peak hour."""
    told = _told_by_logs(manifest).get("engines")
    setting = settings["instances"]
    if setting.value is not None:
        instances = int(setting.value)
    elif isinstance(told, int) and told > 0:
        instances, setting = told, Setting("instances", told, FROM_LOGS)
    else:
        instances = 1 if trace is None else _sized(trace, deployment)
        setting = Setting("instances", instances, "default")
    settings = settings.replaced({"instances": setting})
    return Setup(
        deployment=deployment,
        fleet=default_fleet(deployment, instances),
        settings=tuple(_as_value(one) for one in settings.public()),
    )


def _sized(trace: RequestTrace, deployment: Deployment) -> int:
    return size_fleet(peak_window(trace), deployment, TARGET_UTILISATION)


def _as_value(setting: Setting) -> SettingValue:
    is_confirmed = not setting.is_default or setting.name in HARMLESS_SETTINGS
    return SettingValue(setting.name, _file_name(setting.value), setting.origin, is_confirmed)


def _file_name(value: Value) -> Value:
    """A path's last part: where a config file lies on a disk is nobody's business."""
    if isinstance(value, str) and "/" in value and Path(value).exists():
        return Path(value).name
    return value


def _filled(setting: Setting, value: Value) -> Setting:
    return Setting(setting.name, value, setting.origin)


def _told_by_logs(manifest: Manifest) -> dict[str, str | int | float]:
    """Engine facts over all sources, the headline's first."""
    told: dict[str, str | int | float] = {}
    for source in sorted(manifest.sources, key=_role):
        for name, value in source.engine_facts.items():
            told.setdefault(name, value)
    return told


def _role(source: SourceEntry) -> tuple[int, int]:
    return _ROLE_ORDER.index(source.role), source.source_id


def _choose_llm(settings: Settings, told: dict[str, str | int | float]) -> tuple[LlmShape, Setting]:
    setting = settings["llm"]
    if setting.value is not None:
        return load_llm(str(setting.value)), setting
    named = told.get("llm")
    if named is not None:
        try:
            shape = load_llm(str(named))
        except UsageError:
            pass  # the logs name an LLM whose shape is not known here: the default stays marked
        else:
            return shape, Setting("llm", shape.name, FROM_LOGS)
    return load_llm(DEFAULT_LLM), Setting("llm", DEFAULT_LLM, "default")


def _choose_hardware(
    settings: Settings, told: dict[str, str | int | float]
) -> tuple[HardwareProfile, Setting]:
    setting = settings["hardware"]
    if setting.value is not None:
        return load_hardware(str(setting.value)), setting
    named = told.get("gpu")
    if named is not None:
        try:
            profile = load_hardware(str(named))
        except UsageError:
            pass
        else:
            return profile, Setting("hardware", profile.gpu.name, FROM_LOGS)
    return load_hardware(DEFAULT_HARDWARE), Setting("hardware", DEFAULT_HARDWARE, "default")


def _choose_tp(settings: Settings, told: dict[str, str | int | float], llm: Setting) -> Setting:
    setting = settings["tp"]
    if setting.value is not None:
        return setting
    found = told.get("tensor_parallel")
    if isinstance(found, int) and llm.origin == FROM_LOGS:
        return Setting("tp", found, FROM_LOGS)
    if llm.value == DEFAULT_LLM and llm.is_default and settings["hardware"].value is None:
        return Setting("tp", 8, "default")
    return setting


def main_domain(manifest: Manifest) -> int | None:
    """The headline's cache domain with the most block references; None without blocks."""
    headline = {source.source_id for source in manifest.sources if source.role == "headline"}
    sizes = Counter(
        {
            domain.cache_domain: domain.block_refs
            for domain in manifest.domains
            if domain.source_id in headline
        }
    )
    return min(sizes, key=lambda name: (-sizes[name], name)) if sizes else None
