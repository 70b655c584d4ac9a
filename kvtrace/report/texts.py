"""The words of the report in one language, from `i18n/<lang>.json`; both files have equal keys."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Final, Literal, get_args

Lang = Literal["en", "zh"]
LANGS: Final[tuple[Lang, ...]] = get_args(Lang)


_GAP: Final = re.compile(r"(?<=[\u3400-\u9fff，。：；、）]) +(?=[\u3400-\u9fff，。：；、（])")
"""Spaces between Chinese characters, where a value is Chinese, too."""


@dataclass(frozen=True, slots=True)
class Texts:
    """UI strings of one language; calling it fills the placeholders of one string."""

    lang: Lang
    strings: dict[str, str]

    def __call__(self, key: str, **values: object) -> str:
        """The string `key` with `{placeholders}` filled; a missing key is a bug and raises."""
        said = self.strings[key].format(**values)
        return _GAP.sub("", said) if self.lang == "zh" else said

    def has(self, key: str) -> bool:
        """Whether there is such a string."""
        return key in self.strings

    def or_code(self, prefix: str, code: str) -> str:
        """The string `prefix.code`, or the code itself where no words are known for it."""
        return self.strings.get(f"{prefix}.{code}", code)


@cache
def load_texts(lang: Lang) -> Texts:
    """The strings of `lang`."""
    source = files("kvtrace.report").joinpath("i18n", f"{lang}.json")
    return Texts(lang, json.loads(source.read_text(encoding="utf-8")))


def read_asset(name: str) -> str:
    """Text of one file of `assets/`."""
    return files("kvtrace.report").joinpath("assets", name).read_text(encoding="utf-8")
