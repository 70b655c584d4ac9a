"""A record whose sentences are in the language of the report; its data stays as it is."""

from __future__ import annotations

from typing import Final, TypeVar

import msgspec

from kvtrace.report.sentences import Sentences, load_sentences
from kvtrace.report.texts import Lang

T = TypeVar("T")
_KEPT: Final = frozenset(
    (
        "binds",
        "code",
        "columns",
        "command",
        "content_digest",
        "dataset_digest",
        "id",
        "inputs",
        "link_id",
        "option",
        "path",
        "query",
        "rival",
        "settings",
        "units",
    )
)
"""Fields that name things; nothing in them is a sentence."""


def localised(record: T, lang: Lang) -> T:
    """`record`, a struct, with its sentences in `lang`."""
    if lang == "en":
        return record
    return _copy(record, load_sentences(lang))


def _copy(value: T, sentences: Sentences) -> T:
    result: object = value
    if isinstance(value, str):
        result = sentences(value) if " " in value else value
    elif isinstance(value, list):
        result = [_copy(one, sentences) for one in value]
    elif isinstance(value, dict):
        result = {key: _copy(one, sentences) for key, one in value.items()}
    elif isinstance(value, msgspec.Struct):
        fields = ((name, getattr(value, name)) for name in value.__struct_fields__)
        changed = {name: _copy(one, sentences) for name, one in fields if not _is_kept(name, one)}
        result = msgspec.structs.replace(value, **changed)
    return result  # type: ignore[return-value]


def _is_kept(name: str, value: object) -> bool:
    """Whether a field names things; a list of structs of the same name does not."""
    is_rows = isinstance(value, list) and any(isinstance(one, msgspec.Struct) for one in value)
    return name in _KEPT and not is_rows
