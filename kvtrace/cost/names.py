"""Names as people write them: without case, vendor prefix, punctuation or tuning suffix."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from kvtrace.errors import UsageError

_NOISE: Final = frozenset({
    "meta", "nvidia", "instruct", "it", "chat", "base", "hf", "thinking", "gguf",
    "fp8", "fp4", "nvfp4", "mxfp4", "bf16", "fp16", "awq", "gptq", "int4", "int8",
    "w4a16", "w8a8", "w8a16", "dynamic", "quantized", "quant",
    "0324", "0528", "0905", "2501", "2507",
})  # fmt: skip
"""Words that do not change a shape: vendor, tuning, quantisation, release dates."""
_SPLIT: Final = re.compile(r"[\s_\-/()]+")
_PUNCTUATION: Final = re.compile(r"[^a-z0-9]+")


def normalise(name: str) -> str:
    """The letters and digits that tell one name from another."""
    words = [word for word in _SPLIT.split(name.lower()) if word and word not in _NOISE]
    return _PUNCTUATION.sub("", "".join(words))


def build_index(names: Iterable[tuple[str, Iterable[str]]]) -> dict[str, str]:
    """Normalised name or alias to the name itself; two owners of one key are a fault."""
    index: dict[str, str] = {}
    for name, aliases in names:
        for label in (name, *aliases):
            key = normalise(label)
            if index.setdefault(key, name) != name:
                raise ValueError(f"`{label}` names both {index[key]} and {name}")
    return index


def find_name(text: str, index: Mapping[str, str], *, what: str, code: str, hint: str) -> str:
    """The listed name that `text` means, tried whole, then without its path prefix.

    Raises:
        UsageError: nothing matches; close names are listed.
    """
    for candidate in (text, text.rstrip("/").rsplit("/", 1)[-1]):
        found = index.get(normalise(candidate))
        if found is not None:
            return found
    close = _close_names(text, index)
    cause = f"close names: {', '.join(close)}" if close else None
    raise UsageError(code, f"`{text}` is not a known {what}", cause=cause, hint=hint)


def _close_names(text: str, index: Mapping[str, str]) -> list[str]:
    import difflib

    key = normalise(text.rstrip("/").rsplit("/", 1)[-1])
    close = difflib.get_close_matches(key, list(index), n=8, cutoff=0.5)
    return list(dict.fromkeys(index[item] for item in close))[:4]
