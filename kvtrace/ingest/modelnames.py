"""Names that a dataset shows: of models, adapters, kinds of request, engines. The only free text.

A name that may be something else (a prompt, an address, a key, a host, a folder of a person) is
shown as `hidden-1`, `hidden-2`, … in the order of its first appearance: rows that share a name
still share it, and nothing of it is kept. Of a path or URL the last part is the name.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import polars as pl

HIDDEN_NOTE: Final = "names_hidden"
_PATH: Final = re.compile(r"[/.~]|[A-Za-z]:[\\/]|[a-z][a-z0-9+.-]{1,20}://|arn:|.*\\", re.DOTALL)
_URL: Final = re.compile(r"[a-z][a-z0-9+.-]{1,20}://[^/\\]*", re.DOTALL)
_HUB: Final = re.compile(
    r".*/models--([\w.-]{1,96})--([\w.-]{1,96})/snapshots/[0-9a-f]{40}/?", re.ASCII
)
"""A model in the cache of Hugging Face's hub."""
_MAX_CHARS: Final = 128
_NAME: Final = re.compile(
    r"[A-Za-z0-9@_(\[][A-Za-z0-9._:/+@=~,()\[\]-]*(?: [A-Za-z0-9._:/+@=~,()\[\]-]+){0,3}", re.ASCII
)
_LABEL: Final = re.compile(
    r"[A-Za-z0-9._:/+@=~,#>()\[\]-]+(?: [A-Za-z0-9._:/+@=~,#>()\[\]-]+){0,11}", re.ASCII
)
_KIND: Final = re.compile(r"[A-Za-z][A-Za-z_./-]{0,39}|[0-9]{1,4}", re.ASCII)
_TOP_DOMAINS: Final = (
    "internal|local|localdomain|lan|corp|intra|intranet|home|private|svc|cluster|consul|invalid|test"
    "|example|com|net|org|edu|gov|io|dev|cloud|app|cn|de|eu|fr|in|jp|kr|nl|ru|uk|us"
)
_UNSAFE: Final = re.compile(
    r"[^@\s/]@[^@\s]+\.[A-Za-z]{2}"  # a mail address
    r"|(?<![\d.])\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3}(?![\d.])"  # an IP address, and the newer kind
    r"|(?:[0-9A-Fa-f]{0,4}:){3}"
    r"| [/~.]"  # a path behind a word
    rf"|[A-Za-z0-9-]\.(?:{_TOP_DOMAINS})(?::\d+)?(?=/|\Z)"  # a host
    r"|(?<![A-Za-z0-9])(?:sk|pk|rk|gsk|xai|glpat|gh[opsu]|github_pat|xox[abprs])[-_]"  # keys
    r"[A-Za-z0-9_-]{16}"
    r"|(?<![A-Za-z0-9])hf_[A-Za-z0-9]{16}"
    r"|(?<![A-Za-z0-9])(?:AIza|AKIA|ASIA|eyJ)[A-Za-z0-9_-]{12}"
    r"|(?<![A-Za-z0-9])(?<!sha256[-:])[0-9A-Za-z]{32}"
)


def base_name(name: str) -> str:
    """The last part of a path or URL; any other name, such as `org/model`, as it is.

    A model in the hub's cache is `org/model`; of a URL the host is no part.
    """
    if _PATH.match(name) is None:
        return name
    hub = _HUB.fullmatch(name)
    if hub is not None:
        return f"{hub[1]}/{hub[2]}"
    return re.split(r"[/\\]", _URL.sub("", name, count=1).rstrip("/\\"))[-1]


def llm_name(name: str) -> str:
    """The model's name; of a path, its last part (a path may name people and hosts)."""
    if name.startswith(("/", ".", "~")) or name.count("/") > 1:
        return name.rstrip("/").rsplit("/", 1)[-1]
    return name


def is_name(text: str) -> bool:
    """Whether a text can be shown as the name of something: short, plain, and nobody's address."""
    return (
        len(text) <= _MAX_CHARS
        and _NAME.fullmatch(text) is not None
        and _UNSAFE.search(text) is None
    )


def _is_label(text: str) -> bool:
    return (
        len(text) <= _MAX_CHARS
        and _LABEL.fullmatch(text) is not None
        and _UNSAFE.search(text) is None
    )


def _is_version(text: str) -> bool:
    return _is_label(text.replace("<", ">"))


def _is_kind(text: str) -> bool:
    return _KIND.fullmatch(text) is not None and _UNSAFE.search(text) is None


@dataclass(slots=True)
class NameBook:
    """The names of one dataset, and what those are shown as that must not be."""

    _hidden: dict[str, str] = field(default_factory=dict)

    @property
    def hidden(self) -> int:
        """Names that are shown as something else."""
        return len(self._hidden)

    def words(self) -> str:
        """What a note says of them."""
        return (
            f"Names of models, adapters, kinds of request or engines that may be a prompt, an"
            f" address, a key or a host: {self.hidden:,}. They are shown as hidden-1, hidden-2, …"
        )

    def name(self, text: str) -> str | None:
        """A model's or adapter's name as it is shown; None where nothing is left of it."""
        short = base_name(text)
        return self._shown(short, text, is_name) if short else None

    def label(self, text: str) -> str | None:
        """The name of an engine, or of the way that KV moved, as it is shown."""
        return self._shown(text, text, _is_label) if text else None

    def kind(self, text: str) -> str | None:
        """A kind of request as it is shown."""
        return self._shown(text, text, _is_kind) if text else None

    def version(self, text: str | None) -> str | None:
        """A program's version as it is shown; `>=0.9,<0.10` is one too."""
        return None if text is None else self._shown(text, text, _is_version)

    def _shown(self, short: str, text: str, is_fit: Callable[[str], bool]) -> str:
        if is_fit(short):
            return short
        return self._hidden.setdefault(text, f"hidden-{len(self._hidden) + 1}")

    def shown_names(self, frame: pl.DataFrame) -> pl.DataFrame:
        """The rows of any table, in their order, with every column of names as it is shown."""
        ways: dict[str, Callable[[str], str | None]] = {
            "llm": self.name,
            "adapter": self.name,
            "request_type": self.kind,
            "engine": self.label,
            "instance": self.label,
            "path": self.label,
        }
        for column, way in ways.items():
            if column in frame.columns:
                names = frame[column].unique(maintain_order=True).drop_nulls().to_list()
                shown = {name: way(name) for name in names}
                changed = {name: text for name, text in shown.items() if text != name}
                if changed:
                    frame = frame.with_columns(pl.col(column).replace(changed))
        return frame

    def shown_facts(self, facts: dict[str, str | int | float]) -> dict[str, str | int | float]:
        """What a log says of its engine, texts as names; what is none is left out."""
        shown: dict[str, str | int | float] = {}
        for fact, value in facts.items():
            text = self.name(value) if isinstance(value, str) else value
            if text is not None:
                shown[fact] = text
        return shown
