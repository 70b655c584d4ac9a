"""Settings: what they are, where each value came from, and how a person states one.

Precedence: flag > `KVTRACE_*` > `--config FILE` > `./kvtrace.toml` > user config > default.
"""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from platformdirs import user_config_path

from kvtrace.errors import Location, UsageError

Value = str | int | float | bool | None
ENV_PREFIX: Final = "KVTRACE_"
PROJECT_FILE: Final = "kvtrace.toml"


@dataclass(frozen=True, slots=True)
class SettingSpec:
    """One setting that can be given by flag, environment, file or default."""

    name: str
    kind: type[str] | type[int] | type[float] | type[bool]
    default: Value
    help: str
    check: Callable[[Value], str | None] = lambda value: None
    """A sentence that says what is wrong with a value, or None."""


@dataclass(frozen=True, slots=True)
class Setting:
    """A resolved value and where it came from."""

    name: str
    value: Value
    origin: str
    """flag | environment | the file's path | logs | default."""

    @property
    def is_default(self) -> bool:
        """Whether nobody stated it."""
        return self.origin == "default"


def _one_of(*allowed: str) -> Callable[[Value], str | None]:
    def check(value: Value) -> str | None:
        return None if value in allowed else f"must be one of {', '.join(allowed)}"

    return check


def _within(low: float, high: float) -> Callable[[Value], str | None]:
    def check(value: Value) -> str | None:
        if value is None or (isinstance(value, int | float) and low <= value <= high):
            return None
        return f"must be between {low:g} and {high:g}"

    return check


def _zone(value: Value) -> str | None:
    if value is None:
        return None
    try:
        ZoneInfo(str(value))
    except (ZoneInfoNotFoundError, ValueError):
        return "is not an IANA time zone such as Europe/Berlin"
    return None


def _salt(value: Value) -> str | None:
    return None if value is None or len(str(value)) >= 8 else "needs 8 characters or more"


SETTINGS: Final[tuple[SettingSpec, ...]] = (
    SettingSpec("llm", str, None, "served LLM: a name or the path of a Hugging Face config.json"),
    SettingSpec("hardware", str, None, "GPU name or the path of a hardware TOML file"),
    SettingSpec("tp", int, None, "GPUs an instance (tensor parallel)", _within(1, 64)),
    SettingSpec("instances", int, None, "engine instances in the fleet", _within(1, 4096)),
    SettingSpec("fleet", str, None, "fleet TOML: instances, pool, idle DRAM, prices"),
    SettingSpec(
        "weight_dtype", str, "bf16", "dtype of the weights", _one_of("bf16", "fp16", "fp8", "fp4")
    ),
    SettingSpec("kv_dtype", str, "bf16", "dtype of the KV cache", _one_of("bf16", "fp16", "fp8")),
    SettingSpec(
        "cost_provider",
        str,
        "kvtrace",
        "whose prefill and decode times: kvtrace, or aiconfigurator (:vllm, :sglang, :trtllm)",
        _one_of(
            "kvtrace",
            "aiconfigurator",
            *(f"aiconfigurator:{engine}" for engine in ("vllm", "sglang", "trtllm")),
        ),
    ),
    SettingSpec("tz", str, None, "IANA zone of clocks that state none", _zone),
    SettingSpec("year", int, None, "year of clocks that state none", _within(1990, 2200)),
    SettingSpec("block_size", int, None, "tokens a block, forced", _within(1, 1 << 20)),
    SettingSpec(
        "max_reject_rate", float, 0.05, "share of unusable records tolerated", _within(0.0, 1.0)
    ),
    SettingSpec(
        "allow_inert_pickle", bool, False, "read pickled request dumps, without running anything"
    ),
    SettingSpec("tokenizer", str, None, "local tokenizer.json or tiktoken file, for prompt texts"),
    SettingSpec(
        "bytes_per_token",
        float,
        None,
        "bytes of prompt text a token, where there is no tokenizer",
        _within(1.0, 16.0),
    ),
    SettingSpec("hash_prompts", bool, True, "make block keys of prompts that stand in the logs"),
    SettingSpec("mapping", str, None, "mapping TOML: fields, units and clock of logs of your own"),
    SettingSpec("salt", str, None, "key of the hashes; the same salt joins runs", _salt),
    SettingSpec(
        "depth", str, "quick", "quick: replay the peak hour; full: all", _one_of("quick", "full")
    ),
    SettingSpec("lang", str, "en", "language of the report", _one_of("en", "zh")),
    SettingSpec("seed", int, 0, "seed of everything random", _within(0, 2**63 - 1)),
)
_BY_NAME: Final = {spec.name: spec for spec in SETTINGS}
_SECRET: Final = frozenset({"salt"})
_SWITCHES: Final = {"true": True, "1": True, "false": False, "0": False}
_OTHER_VARIABLES: Final = frozenset({"KVTRACE_DEBUG", "KVTRACE_NO_PLUGINS"})


class Settings:
    """All resolved settings; read values with `text`, `integer`, `number`."""

    def __init__(self, resolved: Mapping[str, Setting]) -> None:
        self._resolved = dict(resolved)

    def __iter__(self) -> Iterator[Setting]:
        return iter(self._resolved.values())

    def __getitem__(self, name: str) -> Setting:
        return self._resolved[name]

    def replaced(self, changed: Mapping[str, Setting]) -> Settings:
        """These settings with some replaced, such as by what the logs say."""
        return Settings({**self._resolved, **changed})

    def text(self, name: str) -> str | None:
        """Value of a text setting."""
        value = self._resolved[name].value
        return None if value is None else str(value)

    def integer(self, name: str) -> int | None:
        """Value of a whole-number setting."""
        value = self._resolved[name].value
        return None if value is None else int(value)

    def number(self, name: str) -> float | None:
        """Value of a numeric setting."""
        value = self._resolved[name].value
        return None if value is None else float(value)

    def switch(self, name: str) -> bool:
        """Value of a setting that is on or off."""
        return self._resolved[name].value is True

    def public(self) -> list[Setting]:
        """What may be printed: everything but secrets."""
        return [setting for setting in self if setting.name not in _SECRET]


def _convert(spec: SettingSpec, raw: object, origin: str) -> Value:
    shown = "" if spec.name in _SECRET else f" = {raw!r}"
    try:
        if spec.kind is bool:
            return _SWITCHES[str(raw).lower()]
        if isinstance(raw, bool) or not isinstance(raw, str | int | float):
            raise TypeError
        if spec.kind is int and isinstance(raw, float) and not raw.is_integer():
            raise ValueError
        value: Value = spec.kind(raw)
    except (TypeError, ValueError, KeyError) as error:
        kinds = {int: "a whole number", float: "a number", str: "text", bool: "true or false"}
        raise UsageError(
            "KVT-S002",
            f"`{spec.name}`{shown} must be {kinds[spec.kind]}",
            where=_origin_place(spec, origin),
            hint=f"{spec.name}: {spec.help}",
        ) from error
    problem = spec.check(value)
    if problem is not None:
        raise UsageError(
            "KVT-S003",
            f"`{spec.name}`{shown} {problem}",
            where=_origin_place(spec, origin),
            hint=f"{spec.name}: {spec.help}",
        )
    return value


def _origin_place(spec: SettingSpec, origin: str) -> Location:
    if origin == "environment":
        return Location(f"environment variable {ENV_PREFIX}{spec.name.upper()}")
    return Location(f"flag --{spec.name.replace('_', '-')}" if origin == "flag" else origin)


def _read_file(path: Path) -> dict[str, object]:
    try:
        with path.open("rb") as stream:
            return tomllib.load(stream)
    except OSError as error:
        raise UsageError(
            "KVT-S004",
            "the config file cannot be read",
            where=Location(str(path)),
            cause=error.strerror,
            hint="name another with `--config FILE`, or leave it out: no config file is needed",
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(
            "KVT-S005", "the config file is not TOML", where=Location(str(path)), cause=str(error)
        ) from error


def _check_names(names: Iterator[str], origin: str) -> None:
    for name in names:
        if name not in _BY_NAME:
            close = difflib.get_close_matches(name, _BY_NAME, n=3)
            hint = (
                f"did you mean {', '.join(f'`{match}`' for match in close)}?"
                if close
                else f"settings stand at the top level of the file: {', '.join(_BY_NAME)}"
            )
            raise UsageError(
                "KVT-S001", f"unknown setting `{name}`", where=Location(origin), hint=hint
            )


def _check_environment(environment: Mapping[str, str]) -> None:
    """Refuse a `KVTRACE_…` that means nothing: a typo there would go unseen."""
    for variable in sorted(environment):
        if variable.startswith(ENV_PREFIX) and variable not in _OTHER_VARIABLES:
            name = variable.removeprefix(ENV_PREFIX).lower()
            _check_names(iter([name]), f"environment variable {variable}")


def _layers(
    flags: Mapping[str, Value], config: Path | None, environment: Mapping[str, str], cwd: Path
) -> Iterator[tuple[str, Mapping[str, object]]]:
    """Origins with their values, strongest first."""
    yield "flag", {name: value for name, value in flags.items() if value is not None}
    yield (
        "environment",
        {
            spec.name: environment[ENV_PREFIX + spec.name.upper()]
            for spec in SETTINGS
            if environment.get(ENV_PREFIX + spec.name.upper())
        },
    )
    if config is not None:
        yield str(config), _read_file(config)
    project = cwd / PROJECT_FILE
    if project.is_file() and (config is None or config.resolve() != project.resolve()):
        yield PROJECT_FILE, _read_file(project)
    user = user_config_path("kvtrace", appauthor=False) / "config.toml"
    if user.is_file():
        yield "user config", _read_file(user)


def resolve_settings(
    flags: Mapping[str, Value] | None = None,
    *,
    config: Path | None = None,
    environment: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> Settings:
    """All settings with their origins.

    Raises:
        UsageError: an unknown name, a wrong type, a value out of range, an unreadable file.
    """
    env = os.environ if environment is None else environment
    _check_environment(env)
    layers = list(_layers(flags or {}, config, env, cwd or Path.cwd()))
    for origin, values in layers:
        _check_names(iter(values), origin)
    resolved = {}
    for spec in SETTINGS:
        resolved[spec.name] = Setting(spec.name, spec.default, "default")
        for origin, values in layers:
            if spec.name in values:
                value = _convert(spec, values[spec.name], origin)
                resolved[spec.name] = Setting(spec.name, value, origin)
                break
    return Settings(resolved)
