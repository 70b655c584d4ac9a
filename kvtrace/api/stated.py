"""Settings as keyword arguments of the verbs of Python."""

from __future__ import annotations

from typing import TypedDict

from kvtrace.config import Settings, Value, resolve_settings


class Stated(TypedDict, total=False):
    """Every setting by name; None: not stated. docs/settings.md says what each means."""

    llm: str | None
    hardware: str | None
    tp: int | None
    instances: int | None
    fleet: str | None
    weight_dtype: str | None
    kv_dtype: str | None
    cost_provider: str | None
    tz: str | None
    year: int | None
    block_size: int | None
    max_reject_rate: float | None
    allow_inert_pickle: bool | None
    tokenizer: str | None
    bytes_per_token: float | None
    hash_prompts: bool | None
    mapping: str | None
    salt: str | None
    depth: str | None
    lang: str | None
    seed: int | None


def settings_with(settings: Settings | None, stated: Stated) -> Settings:
    """The settings, or those of environment and files, with what is stated over them.

    Raises:
        UsageError: an unknown name, a wrong type, a value out of range.
    """
    given: dict[str, Value] = {name: value for name, value in stated.items() if value is not None}  # type: ignore[misc]
    resolved = resolve_settings(given)
    if settings is None:
        return resolved
    return settings.replaced({name: resolved[name] for name in given})
