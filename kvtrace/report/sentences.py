"""Sentences that are made below the report, in another language.

Findings, verdict, notes, titles and meanings are English text in the record, so that audit.json
reads as it is. `i18n/sentences.en.json` holds that text as templates, `sentences.<lang>.json` what
each becomes; both have equal keys. As with gettext, the English text itself finds its translation:
a record that an older version wrote is translated, too.

A placeholder is `{value}`, `{value:number}` (digits only), `{value:name}` (no joint in it) or
`{value:plural}` (an English ending, which other languages leave out). Values that are sentences are
translated like sentences.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Final

from kvtrace.report.texts import Lang

PLACEHOLDER: Final = re.compile(r"\{(\w+)(?::(number|plural|name))?\}")
_VALUES: Final = {
    "number": r"([+\-−]?[\d.,]+(?:e[+-]?\d+)?%?|∞|inf|nan)",
    "plural": r"(\w*)",
    "name": r"((?:(?! with |[,;:] ).)*?)",
    None: r"(.*?)",
}
_ADDED: Final = r"((?:[;:,.] .*?| \(.*?| (?:and|as|beside|until) .*?|, .*?,)?)"
"""A value right behind another one: nothing, or a piece that begins like one."""
_NUMBER: Final = re.compile(r"\d(?:[\d,.]*\d)?")
_CODE: Final = re.compile(r"`[^`]*`")
_WORD: Final = re.compile(r"(?<![\w/.:-])[A-Za-z]?[a-z]{2,}(?![\w/]|:\S|[.]\w|-\w)")
_SENTENCE_JOINTS: Final = ((". ", "。"), ("; ", "；"))
"""Where sentences are put together, with what stands there instead; each is translated alone."""
_LIST_JOINTS: Final = (
    (": ", "："),
    (", or ", "，或"),
    (", and ", "，且"),
    (", ", "、"),
    (" and ", " 和 "),
    (" or ", " 或 "),
)
"""The same within a sentence, which is translated whole or not at all."""
_UNITS: Final = frozenset(("min", "ms", "ns", "us", "utc"))
_LEAST_FIXED: Final = 24
"""Characters of a pattern that may hold values which stay English; shorter ones fit too much."""
_MOST_DEPTH: Final = 24
"""Sentences within sentences, and members of a list; deeper ones stay English."""
_MOST_LENGTH: Final = 2_000
"""Characters of a text that is still a sentence."""


def english_words(text: str, kept: frozenset[str] = frozenset()) -> int:
    """Words of `text` that are English prose: no code, names, paths, or terms that are `kept`."""
    return sum(word not in kept for word in _WORD.findall(_CODE.sub(" ", text)))


@dataclass(frozen=True, slots=True)
class _Pattern:
    """A sentence with values, and what it becomes."""

    shape: re.Pattern[str]
    names: tuple[str, ...]
    kinds: tuple[str, ...]
    probe: str
    """Its longest fixed part: a text without it needs no closer look."""
    fixed: int
    """Characters that are not values."""
    words: str

    @property
    def is_long(self) -> bool:
        """It fits what it means to: much of it is fixed, or its values hold no joint."""
        return self.fixed >= _LEAST_FIXED or "text" not in self.kinds


def _pattern(english: str, words: str) -> _Pattern:
    shape, at = "", 0
    names: list[str] = []
    kinds: list[str] = []
    parts: list[str] = []
    for match in PLACEHOLDER.finditer(english):
        parts.append(english[at : match.start()])
        is_added = bool(names) and not parts[-1] and match[2] is None
        shape += re.escape(parts[-1]) + (_ADDED if is_added else _VALUES[match[2]])
        names.append(match[1])
        kinds.append(match[2] or "text")
        at = match.end()
    parts.append(english[at:])
    return _Pattern(
        re.compile(shape + re.escape(parts[-1]), re.DOTALL),
        tuple(names),
        tuple(kinds),
        max(parts, key=len),
        sum(map(len, parts)),
        words,
    )


@dataclass(frozen=True, slots=True)
class Sentences:
    """The translations into one language; a text that none fits stays as it is."""

    fixed: dict[str, str]
    patterns: tuple[_Pattern, ...]
    kept: frozenset[str] = frozenset()
    """Words that the translations hold themselves: terms of the field, units."""
    _known: dict[str, str] = field(default_factory=dict)

    def __call__(self, text: str) -> str:
        """`text` in this language, its numbers and code unchanged."""
        return self._translated(text, 0)

    def words_left(self, text: str) -> int:
        """English words that a translation of `text` would not hold."""
        return english_words(text, self.kept)

    def _translated(self, text: str, depth: int) -> str:
        if len(text) > _MOST_LENGTH or depth > _MOST_DEPTH or not english_words(text):
            return self.fixed.get(text, text)
        known = self._known.get(text)
        if known is None:
            known = self._best(text, depth)
            self._known[text] = known
        return known

    def _best(self, text: str, depth: int) -> str:
        """The candidate that leaves least English; of equal ones the first."""
        if text in self.fixed:
            return self.fixed[text]
        best, least = text, self._score(text)
        for candidate in self._candidates(text, depth):
            score = self._score(candidate)
            if score < least and _numbers(candidate) == _numbers(text):
                best, least = candidate, score
            if least == (0, 0):
                break
        return best

    def _score(self, text: str) -> tuple[int, int]:
        return self.words_left(text), english_words(text)

    def _candidates(self, text: str, depth: int) -> Iterator[str]:
        """Long patterns, pieces, then short patterns, which fit across the pieces of a list."""
        yield from self._fitting(text, depth, is_long=True)
        if text[0].isupper() and not text[:2].isupper():
            lowered = self._translated(text[0].lower() + text[1:], depth + 1)
            if not lowered.startswith(text[0].lower()):
                yield lowered
        if text.endswith("."):
            yield f"{self._translated(text[:-1], depth + 1)}。"
        for joint, ours in _SENTENCE_JOINTS:
            if joint in text:
                yield ours.join(self._translated(part, depth + 1) for part in text.split(joint))
        for joint, ours in _LIST_JOINTS:
            for at in _places(joint, text):
                head = self._translated(text[:at], depth + 1)
                if not self.words_left(head):
                    rest = self._translated(text[at + len(joint) :], depth + 1)
                    if not self.words_left(rest):
                        yield f"{head}{ours}{rest}"
        yield from self._fitting(text, depth, is_long=False)

    def _fitting(self, text: str, depth: int, *, is_long: bool) -> Iterator[str]:
        for pattern in self.patterns:
            if pattern.is_long == is_long and pattern.probe in text:
                match = pattern.shape.fullmatch(text)
                filled = match and self._filled(pattern, match, depth)
                if filled:
                    yield filled

    def _filled(self, pattern: _Pattern, match: re.Match[str], depth: int) -> str | None:
        values = {
            name: self._translated(value, depth + 1) if kind in ("text", "name") else value
            for name, kind, value in zip(pattern.names, pattern.kinds, match.groups(), strict=True)
        }
        if pattern.fixed < _LEAST_FIXED and any(map(self.words_left, values.values())):
            return None
        return _spaced(PLACEHOLDER.sub(lambda one: values[one[1]], pattern.words))


_HAN: Final = r"[\u3400-\u9fff]"
_MARK: Final = "[，。：；、（）]"
_BETWEEN_HAN: Final = re.compile(rf"(?<={_HAN}) +(?={_HAN})|(?<={_MARK}) +| +(?={_MARK})")
_BESIDE_HAN: Final = re.compile(rf"(?<={_HAN})(?=[A-Za-z0-9$])|(?<=[A-Za-z0-9%])(?={_HAN})")


_COMMA: Final = re.compile(rf"(?<={_HAN}), ?|,(?={_HAN})")


def _spaced(text: str) -> str:
    """A space between Chinese and Latin letters or digits, none between two Chinese ones."""
    return _BESIDE_HAN.sub(" ", _BETWEEN_HAN.sub("", _COMMA.sub("，", text)))


def _places(joint: str, text: str) -> Iterator[int]:
    at = text.find(joint)
    while at >= 0:
        yield at
        at = text.find(joint, at + 1)


def _numbers(text: str) -> Counter[str]:
    """The numbers of a text: a translation has the same ones."""
    return Counter(_NUMBER.findall(text))


def load_pairs(lang: Lang) -> dict[str, tuple[str, str]]:
    """By key: the English template and that of `lang`."""
    folder = files("kvtrace.report").joinpath("i18n")
    english, words = (
        json.loads(folder.joinpath(f"sentences.{one}.json").read_text(encoding="utf-8"))
        for one in ("en", lang)
    )
    return {key: (text, words[key]) for key, text in english.items()}


@cache
def load_sentences(lang: Lang) -> Sentences:
    """The translations into `lang`; those into English change nothing."""
    if lang == "en":
        return Sentences({}, ())
    pairs = list(load_pairs(lang).values())
    pairs = [each for pair in pairs for each in _with_bare(*pair)]
    patterns = [_pattern(english, words) for english, words in pairs if "{" in english]
    patterns.sort(key=lambda one: (-one.fixed, one.shape.pattern))
    held = (PLACEHOLDER.sub(" ", words) for _, words in pairs if "|" not in words)
    return Sentences(
        {english: words for english, words in pairs if "{" not in english},
        tuple(patterns),
        frozenset(word for words in held for word in _WORD.findall(_CODE.sub(" ", words))) | _UNITS,
    )


_MARKS: Final = ((". ", "。"), ("; ", "；"), (": ", "："), (", ", "，"))


def _with_bare(english: str, words: str) -> Iterator[tuple[str, str]]:
    """A piece that begins or ends with a joint, and the same without it: text is split there."""
    yield english, words
    for joint, ours in _MARKS:
        if english.startswith(joint) and words.startswith(ours):
            yield english.removeprefix(joint), words.removeprefix(ours)
        if english.endswith(joint) and words.endswith(ours):
            yield english.removesuffix(joint), words.removesuffix(ours)
