"""A Hugging Face config with typed access, and refusals that name what is missing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kvtrace.errors import Location, UsageError


@dataclass(frozen=True, slots=True)
class HfConfig:
    """The keys of one config.json; nested text configs are flattened first."""

    keys: Mapping[str, object]
    where: str

    @property
    def model_type(self) -> str:
        """Such as `qwen3_moe`; empty where it is not stated."""
        return str(self.keys.get("model_type", ""))

    def whole(self, *names: str) -> int | None:
        """The first of these keys that is stated, a whole number of zero or more.

        Raises:
            UsageError: it is stated and no such number.
        """
        for name in names:
            value = self.keys.get(name)
            if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MOST:
                return value
            if value is not None and not isinstance(value, list):
                raise self.fault(f"`{name}` is not a whole number from 0 to {_MOST:,}")
        return None

    def require(self, *names: str) -> int:
        """The first of these keys that is stated, above zero.

        Raises:
            UsageError: none is.
        """
        value = self.whole(*names)
        if value is None or value <= 0:
            raise self.fault(f"`{names[0]}` is missing or not above zero")
        return value

    def words(self, name: str) -> list[str] | None:
        """A list of texts or numbers, as texts; null where the key is absent or no list."""
        value = self.keys.get(name)
        return [str(item) for item in value] if isinstance(value, list) and value else None

    def table(self, name: str) -> HfConfig | None:
        """A nested table with faults of its own; null where the key is absent or empty."""
        value = self.keys.get(name)
        if not isinstance(value, Mapping) or not value:
            return None
        return HfConfig({str(key): one for key, one in value.items()}, f"{self.where}: {name}")

    def flag(self, name: str, *, default: bool = False) -> bool:
        """A switch; `default` where it is not stated."""
        value = self.keys.get(name)
        return default if value is None else bool(value)

    def fault(self, cause: str) -> UsageError:
        """The refusal of this config."""
        return UsageError(
            "KVT-C032",
            "this config.json cannot be used as an LLM shape",
            where=Location(self.where),
            cause=cause,
            hint="name a built-in LLM instead; `kvtrace llm` lists them",
        )


def layer_count(config: HfConfig) -> int:
    """Layers of the decoder; from its list of blocks where no number is stated."""
    blocks = config.words("layers_block_type")
    names = ("num_hidden_layers", "n_layer", "num_layers")
    if blocks is not None and config.whole(*names) is None:
        return len(blocks)
    layers = config.require(*names)
    if layers > _MOST_LAYERS:
        raise config.fault(f"`num_hidden_layers` is {layers}: more than {_MOST_LAYERS}")
    return layers


def hidden_size(config: HfConfig) -> int:
    """Width of the residual stream."""
    return config.require("hidden_size", "n_embd", "d_model")


_MOST_LAYERS = 10_000
_MOST = 10**9
"""No size in a config is larger."""
