"""What serves the traffic: from settings, else from the logs, else a default that stays marked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Protocol

from kvtrace.audit.inputs import HARMLESS_SETTINGS, SettingValue
from kvtrace.config import Setting, Settings, Value
from kvtrace.cost.deployment import Deployment, build_deployment
from kvtrace.cost.dtypes import normalise_dtype
from kvtrace.cost.fleet import Fleet, default_fleet, read_fleet_file
from kvtrace.cost.fleet.file import FleetFile
from kvtrace.cost.llms import load_llm
from kvtrace.cost.profiles import load_hardware
from kvtrace.cost.slo_target import SloTarget
from kvtrace.errors import UsageError
from kvtrace.replay.window import size_fleet
from kvtrace.schema.arrays import RequestTrace
from kvtrace.schema.manifest import Manifest, SourceEntry

DEFAULT_LLM: Final = "Meta-Llama-3.1-70B"
DEFAULT_HARDWARE: Final = "H100-SXM5"
DEFAULT_TP: Final = 8
"""Of the default LLM on the default hardware."""
TARGET_UTILISATION: Final = 0.6
"""Busy share of the GPUs in the peak hour that an unstated fleet is sized for, recomputing every
prompt: queues stay short below it. An assumption, shown as one."""
FROM_LOGS: Final = "logs"
_ROLE_ORDER: Final = ("headline", "joined", "beside")
_QUANTISED_WEIGHTS: Final = ("fp8", "awq", "gptq", "int8", "mxfp4", "nvfp4")
Told = Mapping[str, str | int | float]


class Sourced(Protocol):
    """A manifest, or the data of a record: what knows its sources."""

    @property
    def sources(self) -> Sequence[SourceEntry]:
        """One a format and model."""
        ...


@dataclass(frozen=True, slots=True)
class Setup:
    """The model that everything is priced with, and where each part of it came from."""

    deployment: Deployment
    fleet: Fleet
    settings: tuple[SettingValue, ...]


def check_names(settings: Settings) -> None:
    """Refuse an LLM or hardware that is not known, before any log is read.

    Raises:
        UsageError: with close matches.
    """
    for name, load in (("llm", load_llm), ("hardware", load_hardware)):
        value = settings.text(name)
        if value is not None:
            load(value)


def choose_deployment(settings: Settings, manifest: Sourced) -> tuple[Deployment, Settings]:
    """The deployment, and the settings with what the logs said filled in.

    Raises:
        UsageError: a name that the user gave is not known.
        ModelError: the weights do not fit the GPUs.
    """
    told = told_by_logs(manifest)
    llm = _named(settings["llm"], told.get("llm"), _llm_name, DEFAULT_LLM)
    hardware = _named(settings["hardware"], told.get("gpu"), _gpu_name, DEFAULT_HARDWARE)
    is_as_logged = _llm_name(str(told.get("llm", ""))) == _llm_name(str(llm.value))
    engine = told if is_as_logged else {}
    file = fleet_file(settings)
    stated_tp = _from_file(settings["tp"], file, "instances.tp")
    tp = _first_stated(stated_tp, engine.get("tensor_parallel"))
    if tp.value is None and llm.is_default and hardware.is_default:
        tp = Setting("tp", DEFAULT_TP, "default")
    weights = _first_stated(settings["weight_dtype"], _weight_dtype(engine))
    shape = load_llm(str(llm.value))
    kv = _first_stated(settings["kv_dtype"], _kv_dtype(engine, shape.native_kv_dtype))
    deployment = build_deployment(
        shape,
        load_hardware(str(hardware.value)),
        tp=None if tp.value is None else int(tp.value),
        weight_dtype=None if weights.is_default else str(weights.value),
        kv_dtype=None if kv.is_default else str(kv.value),
        provider=str(settings["cost_provider"].value),
        pp=_pipeline_stages(file, engine) or 1,
        dp=_rank_count(file, "dp") or 1,
        ep=_rank_count(file, "ep"),
    )
    chosen = [
        Setting("llm", deployment.llm.name, llm.origin),
        Setting("hardware", deployment.hardware.name, hardware.origin),
        Setting("tp", deployment.tp, tp.origin),
        Setting("weight_dtype", deployment.weight_dtype, weights.origin),
        Setting("kv_dtype", deployment.kv_dtype, kv.origin),
    ]
    capacity = engine.get("kv_capacity_tokens")
    if isinstance(capacity, int) and _is_as_printed(deployment, engine):
        deployment = replace(deployment, measured_kv_tokens=capacity)
    deployment = replace(
        deployment,
        measured_chunk_tokens=_positive(told.get("prefill_chunk_tokens")),
        measured_running_requests=_positive(told.get("running_requests")),
    )
    return deployment, settings.replaced({setting.name: setting for setting in chosen})


def _is_as_printed(deployment: Deployment, engine: Told) -> bool:
    """The engine that printed its KV capacity is the one that is replayed, whoever states it."""
    gpu = engine.get("gpu")
    return (
        deployment.dp == 1
        and engine.get("tensor_parallel") == deployment.tp
        and _kv_dtype(engine, deployment.llm.native_kv_dtype) == deployment.kv_dtype
        and (gpu is None or _gpu_name(str(gpu)) in (None, deployment.hardware.gpu.name))
        and _weight_dtype(engine) in (None, deployment.weight_dtype)
    )


def choose_fleet(
    settings: Settings, deployment: Deployment, trace: RequestTrace | None, manifest: Sourced
) -> Setup:
    """The fleet: instances as stated, else as the logs show, else sized for the peak hour.

    Raises:
        UsageError: the fleet file cannot be used.
    """
    file = fleet_file(settings)
    stated = _from_file(settings["instances"], file, "instances.count")
    instances = _first_stated(stated, told_by_logs(manifest).get("engines"))
    if instances.value is None:
        sized = 1 if trace is None else _sized(trace, deployment)
        instances = Setting("instances", sized, "default")
    count = int(instances.value or 1)
    groups = count * (_rank_count(file, "dp") or 1)
    fleet = default_fleet(deployment, groups)
    if file is not None:
        fleet = replace(file.over(fleet), instances=groups)
        fleet = replace(fleet, slo=_of_a_client(fleet.slo, deployment))
    filled = settings.replaced({"instances": instances})
    return Setup(
        deployment=deployment,
        fleet=fleet,
        settings=tuple(_as_value(one) for one in filled.public()),
    )


def _of_a_client(slo: SloTarget, deployment: Deployment) -> SloTarget:
    """A stated SLO with the time in front of the engine, which replays leave out."""
    fixed, each = deployment.front_evidence
    return replace(slo, front_s=fixed.value, front_s_per_token=each.value)


def fleet_file(settings: Settings) -> FleetFile | None:
    """What the fleet file states; null without one.

    Raises:
        UsageError: it cannot be used.
    """
    path = settings.text("fleet")
    return None if path is None else read_fleet_file(path)


def _from_file(setting: Setting, file: FleetFile | None, key: str) -> Setting:
    """The setting if somebody stated it, else what the fleet file says, with who stands behind."""
    value = None if file is None else file.whole(key)
    if file is None or value is None or not setting.is_default:
        return setting
    origins = {"stated": file.path.name, "logs": FROM_LOGS, "unconfirmed": "default"}
    return Setting(setting.name, value, origins[file.standing(key) or "stated"])


def _pipeline_stages(file: FleetFile | None, engine: Told) -> int | None:
    """As the fleet file states; what nobody confirmed there yields to the logs."""
    stated, told = _rank_count(file, "pp"), _positive(engine.get("pipeline_parallel"))
    is_open = file is not None and file.standing("instances.pp") == "unconfirmed"
    return told or stated if is_open else stated or told


def _rank_count(file: FleetFile | None, name: str) -> int | None:
    return None if file is None else file.whole(f"instances.{name}")


def _positive(told: object) -> int | None:
    return told if isinstance(told, int) and told > 0 else None


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


def _sized(trace: RequestTrace, deployment: Deployment) -> int:
    return size_fleet(trace, deployment, TARGET_UTILISATION)


def _as_value(setting: Setting) -> SettingValue:
    is_unused = setting.name == "fleet" and setting.value is None
    is_confirmed = not setting.is_default or setting.name in HARMLESS_SETTINGS or is_unused
    return SettingValue(setting.name, _file_name(setting.value), setting.origin, is_confirmed)


def _file_name(value: Value) -> Value:
    """A path's last part: where a config file lies on a disk is nobody's business."""
    if isinstance(value, str) and "/" in value and Path(value).exists():
        return Path(value).name
    return value


def told_by_logs(manifest: Sourced) -> dict[str, str | int | float]:
    """Engine facts over all sources, the headline's first."""
    told: dict[str, str | int | float] = {}
    for source in sorted(manifest.sources, key=_role):
        for name, value in source.engine_facts.items():
            told.setdefault(name, value)
    return told


def _role(source: SourceEntry) -> tuple[int, int]:
    return _ROLE_ORDER.index(source.role), source.source_id


def _named(
    setting: Setting, told: object, known_name: Callable[[str], str | None], default: str
) -> Setting:
    """What the user named, else what the logs name if it is known here, else the default."""
    if setting.value is not None:
        return setting
    found = None if told is None else known_name(str(told))
    if found is not None:
        return Setting(setting.name, found, FROM_LOGS)
    return Setting(setting.name, default, "default")


def _first_stated(setting: Setting, told: Value) -> Setting:
    """The setting if somebody stated it, else what the logs say, else its default."""
    if not setting.is_default or told is None:
        return setting
    return Setting(setting.name, told, FROM_LOGS)


def _llm_name(name: str) -> str | None:
    try:
        return load_llm(name).name
    except UsageError:
        return None


def _gpu_name(name: str) -> str | None:
    try:
        return load_hardware(name).gpu.name
    except UsageError:
        return None


def _weight_dtype(engine: Told) -> str | None:
    """From `quantization`, else `dtype`, as the engine printed them."""
    for printed in (engine.get("quantization"), engine.get("dtype")):
        name = str(printed).lower()
        for known in _QUANTISED_WEIGHTS:
            if name.startswith(known):
                return _known_dtype(known)
        if printed is not None:
            return _known_dtype(name)
    return None


def _kv_dtype(engine: Told, native: str) -> str | None:
    """From `kv_cache_dtype`; `auto` is what the checkpoint asks for, else the computing dtype."""
    printed = engine.get("kv_cache_dtype")
    if printed is None:
        return None
    if str(printed) != "auto":
        return _known_dtype(str(printed))
    if native != "bf16":
        return native
    computed = engine.get("dtype")
    return _known_dtype(str(computed)) if computed is not None else None


def _known_dtype(name: str) -> str | None:
    try:
        return normalise_dtype(name)
    except UsageError:
        return None
