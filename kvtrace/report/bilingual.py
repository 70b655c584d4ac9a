"""Two renderings of one page as one page that can switch between them.

The same templates made both, so that they differ in words alone. Where the words of an element
differ, it gets a number, and the page carries what stands there in the other language; figures and
tables stand in it once.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from html import unescape
from typing import Final

_TOKEN: Final = re.compile(r"<(script|style)\b[^>]*>.*?</\1>|<[^>]+>|[^<]+", re.DOTALL)
_ATTRIBUTE: Final = re.compile(r"""([\w-]+)="([^"]*)\"""")
_NAME: Final = re.compile(r"</?([a-zA-Z0-9]+)")
_DATA: Final = re.compile(r"""<script type="application/json" id="([^"]+)">(.*)</script>""", re.S)
_VOID: Final = frozenset(("br", "hr", "img", "input", "link", "meta"))
_HOLDS: Final = ("<script", "<section")
"""An element with one of these is never replaced as a whole."""
Json = dict[str, "Json"] | list["Json"] | str | int | float | bool | None


@dataclass(slots=True)
class _Element:
    """An element; children are elements or raw text, scripts and style sheets among it."""

    opening: str
    children: list[_Element | str] = field(default_factory=list)
    closing: str = ""

    def inner(self) -> str:
        return "".join(map(_source, self.children))

    def texts(self) -> list[str]:
        return [one for one in self.children if isinstance(one, str)]

    def elements(self) -> list[_Element]:
        return [one for one in self.children if not isinstance(one, str)]


def _source(node: _Element | str) -> str:
    return node if isinstance(node, str) else f"{node.opening}{node.inner()}{node.closing}"


def _parsed(html: str) -> _Element:
    """The tree of a page that our templates made: each element is closed, or void."""
    root = _Element("")
    open_elements = [root]
    for match in _TOKEN.finditer(html):
        token = match[0]
        if not token.startswith("<") or token.startswith("<!") or match[1]:
            open_elements[-1].children.append(token)
        elif token.startswith("</"):
            if _name(open_elements[-1].opening) != _name(token):
                raise ValueError(f"another element is closed than was opened: {token}")
            open_elements.pop().closing = token
        else:
            element = _Element(token)
            open_elements[-1].children.append(element)
            if not token.endswith("/>") and _name(token) not in _VOID:
                open_elements.append(element)
    if open_elements != [root]:
        raise ValueError(f"an element is not closed: {open_elements[-1].opening[:80]}")
    return root


def _name(tag: str) -> str:
    match = _NAME.match(tag)
    return match[1].lower() if match else ""


@dataclass(slots=True)
class _Other:
    """What the page says in the other language."""

    texts: dict[str, int] = field(default_factory=dict)
    """Markup or attribute value to its place."""
    blocks: dict[str, Json] = field(default_factory=dict)
    """By id of a JSON block: `{"heads": …, "map": {ours: other}}`, or `{"whole": …}`."""

    def place(self, text: str) -> int:
        return self.texts.setdefault(text, len(self.texts))


def merge_languages(ours: str, other: str) -> tuple[str, str]:
    """`ours` with numbered elements, and JSON of the other language's words for them.

    The JSON holds `texts` (a list; `data-l` of an element is the place of its inner markup,
    `data-la` holds `attribute:place` pairs) and `blocks` (by id of a JSON block).

    Raises:
        ValueError: a page is not well formed, or the two are not the same page.
    """
    page, theirs = _parsed(ours), _parsed(other)
    words = _Other()
    _compare(page, theirs, words)
    data = {"texts": list(words.texts), "blocks": words.blocks}
    return page.inner(), json.dumps(data, ensure_ascii=False, sort_keys=True, separators=(",", ":"))


def _compare(ours: _Element, other: _Element, words: _Other) -> None:
    if ours.opening != other.opening:
        _compare_attributes(ours, other, words)
    mine, theirs = ours.elements(), other.elements()
    is_same_shape = list(map(_shape, mine)) == list(map(_shape, theirs))
    if not is_same_shape or not _compare_texts(ours, other, words):
        inner = ours.inner()
        if any(part in inner for part in _HOLDS):
            raise ValueError(f"the languages are not the same page: {ours.opening[:80]}")
        _mark(ours, f'data-l="{words.place(other.inner())}"')
        return
    for one, two in zip(mine, theirs, strict=True):
        _compare(one, two, words)


def _shape(element: _Element) -> str:
    return _ATTRIBUTE.sub(lambda one: one[0] if one[1] == "id" else "", element.opening)


def _compare_texts(ours: _Element, other: _Element, words: _Other) -> bool:
    """Whether the texts between the elements are the same; differing JSON blocks are noted."""
    if ours.texts() == other.texts():
        return True
    if len(ours.children) != len(other.children):
        return False
    for one, two in zip(ours.children, other.children, strict=True):
        if one == two or not isinstance(one, str) or not isinstance(two, str):
            continue
        mine, theirs = _DATA.fullmatch(one), _DATA.fullmatch(two)
        if mine is None or theirs is None:
            return False
        words.blocks[mine[1]] = _other_data(json.loads(mine[2]), json.loads(theirs[2]))
    return True


def _other_data(ours: Json, other: Json) -> Json:
    """The strings that differ, if one table says them all; else the whole."""
    pairs: dict[str, str] = {}
    kept: set[str] = set()
    if not _pair(ours, other, pairs, kept) or kept & pairs.keys():
        return {"whole": other}
    heads = _heads(pairs, kept)
    rest = {one: two for one, two in pairs.items() if _by_head(one, heads) != two}
    return {"heads": dict(heads), "map": dict(rest)}


def _heads(pairs: dict[str, str], kept: set[str]) -> dict[str, str]:
    """What stands before the first colon, where all texts that begin so differ in that alone."""
    heads: dict[str, str] = {}
    refused = {one.partition(":")[0] for one in kept}
    for one, two in pairs.items():
        head, colon, tail = one.partition(":")
        other = two.removesuffix(colon + tail)
        if colon and (other == two or heads.setdefault(head, other) != other):
            refused.add(head)
        if not colon and heads.setdefault(one, two) != two:
            refused.add(one)
    return {one: two for one, two in heads.items() if one not in refused}


def _by_head(text: str, heads: dict[str, str]) -> str:
    head, colon, tail = text.partition(":")
    return f"{heads[head]}{colon}{tail}" if head in heads else text


def _pair(ours: Json, other: Json, pairs: dict[str, str], kept: set[str]) -> bool:
    if isinstance(ours, str) and isinstance(other, str):
        if ours == other:
            kept.add(ours)
            return True
        return pairs.setdefault(ours, other) == other
    if isinstance(ours, list) and isinstance(other, list):
        return len(ours) == len(other) and all(
            _pair(one, two, pairs, kept) for one, two in zip(ours, other, strict=True)
        )
    if isinstance(ours, dict) and isinstance(other, dict):
        return ours.keys() == other.keys() and all(
            _pair(ours[key], other[key], pairs, kept) for key in ours
        )
    return ours == other


def _compare_attributes(ours: _Element, other: _Element, words: _Other) -> None:
    mine, theirs = (dict(_ATTRIBUTE.findall(one.opening)) for one in (ours, other))
    changed = [
        f"{name}:{words.place(unescape(theirs[name]))}"
        for name in mine
        if name in theirs and mine[name] != theirs[name]
    ]
    if changed:
        _mark(ours, f'data-la="{" ".join(changed)}"')


def _mark(element: _Element, mark: str) -> None:
    at = len(element.opening) - (2 if element.opening.endswith("/>") else 1)
    element.opening = f"{element.opening[:at]} {mark}{element.opening[at:]}"
