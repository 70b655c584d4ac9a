"""A mapping offered for the files of an input: those that no format knows, alike ones together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from kvtrace.errors import Location, UsageError
from kvtrace.ingest.contract import Format
from kvtrace.ingest.files.decompress import DecodedStream
from kvtrace.ingest.files.discover import InputFile, discover
from kvtrace.ingest.mapping.names import is_name
from kvtrace.ingest.mapping.spec import COMPRESSED_SUFFIXES, SourceSpec
from kvtrace.ingest.mapping.suggest import Suggested, suggest
from kvtrace.ingest.mapping.trial import checked
from kvtrace.ingest.mapping.writing import render_suggestion
from kvtrace.ingest.sniff import read_head, recognise

_NEEDED: Final = ("prompt_tokens", "usage", "output_tokens", "block_hashes", "token_ids", "prompt")
"""One of these makes a mapping worth writing."""
_MIN_COMMON: Final = 3
"""Characters of a name that files of one glob share."""
_CERTAIN: Final = 0.75
"""From this confidence on a file is one of its format; below, a mapping may say more of it."""
_MAX_NAMED: Final = 10
_RECURS_FROM: Final = 0.5
"""Share of the records that have a field which is named in an error."""


@dataclass(frozen=True, slots=True)
class _Looked:
    """One file: what a mapping of it would be, or why there is none."""

    name: str
    suggested: Suggested | None
    known_as: str | None
    why_not: str


def offer_mapping(inputs: Sequence[Path | str], formats: Iterable[Format]) -> str:
    """The TOML of a first mapping for the files that no format knows; of a single file for it.

    Raises:
        InputError: KVT-I001, an input does not exist.
        UsageError: no file is JSON or CSV with fields that can be mapped.
    """
    known = tuple(formats)
    files = discover(inputs).files
    looked = [_look(file, known, is_alone=len(files) == 1) for file in files]
    wanted = [one for one in looked if one.known_as is None] if len(looked) > 1 else looked
    found = [one.suggested for one in wanted if one.suggested is not None]
    if not found:
        raise _nothing(looked)
    text = render_suggestion(_grouped(found, {one.name for one in looked}))
    if len(looked) == 1 and looked[0].known_as is not None:
        format_name = looked[0].known_as
        return f"# kvtrace reads this file without a mapping, as `{format_name}`.\n{text}"
    return text


def _look(file: InputFile, formats: Sequence[Format], *, is_alone: bool) -> _Looked:
    try:
        with file.path.open("rb") as raw:
            head, _chunks, _is_whole = read_head(DecodedStream(raw))
    except OSError as error:
        return _Looked(file.name, None, None, f"cannot be opened ({error.strerror})")
    found = recognise(head, file.name, formats=formats)
    is_known = found.format is not None and (found.confidence >= _CERTAIN or is_alone)
    known_as = found.format.name if found.format is not None and is_known else None
    made = suggest(head, file.name)
    if made is None:
        return _Looked(file.name, None, known_as, "it does not begin with JSON objects or CSV rows")
    if not any(key in made.chosen for key in _NEEDED):
        why = "no field looks like token counts, block hashes, token ids or a prompt"
        return _Looked(file.name, None, known_as, f"{why}; {_shown(made)}")
    return _Looked(file.name, checked(made, head), known_as, "")


def _shown(made: Suggested) -> str:
    """The fields that recur, with the kind of their values."""
    whole = [shape for shape in made.shapes if shape.coverage >= _RECURS_FROM]
    named = [
        f"`{'.'.join(shape.keys)}` ({shape.kind})"
        for shape in whole[:_MAX_NAMED]
        if all(map(is_name, shape.keys))
    ]
    more = " …" if len(whole) > _MAX_NAMED else ""
    return f"its fields: {', '.join(named)}{more}" if named else "it has no field that recurs"


def _nothing(looked: Sequence[_Looked]) -> UsageError:
    reasons = [f"{one.name}: {one.why_not or f'known as {one.known_as}'}" for one in looked]
    more = len(reasons) - _MAX_NAMED
    shown = reasons[:_MAX_NAMED] + ([f"and {more} more"] if more > 0 else [])
    return UsageError(
        "KVT-U037",
        "there is no file to suggest a mapping for",
        where=Location(looked[0].name) if len(looked) == 1 else None,
        cause="\n".join(shown) or "the input is an empty folder",
        hint=_way_on(looked),
    )


def _way_on(looked: Sequence[_Looked]) -> str:
    if len(looked) != 1:
        return (
            "a mapping reads JSON lines, JSON documents and CSV; name one file alone to get one"
            " for it all the same"
        )
    if looked[0].why_not.startswith("it does not begin"):
        return f"`kvtrace sniff {looked[0].name}` says what it is; a mapping reads JSON and CSV"
    return (
        'write a map.toml of two lines, `[fields]` and `prompt_tokens = "…"` with the field that'
        " counts the prompt; docs/mapping.md lists all keys"
    )


def _grouped(found: Sequence[Suggested], names: set[str]) -> list[Suggested]:
    """Files with the same mapping as one, under a glob that means no other file."""
    groups: dict[str, list[Suggested]] = {}
    for one in found:
        plain = replace(one, name="")
        groups.setdefault(_without_counts(render_suggestion([plain])), []).append(one)
    made: list[Suggested] = []
    for group in groups.values():
        glob = _glob([one.name for one in group], names)
        made += group if glob is None else [replace(group[0], name=glob)]
    return made


def _without_counts(text: str) -> str:
    """The mapping without its comments."""
    return "\n".join(line.partition("  #")[0] for line in text.split("\n") if line[:1] != "#")


def _glob(group: Sequence[str], names: set[str]) -> str | None:
    """A glob that means the files of a group and no other; None if there is none."""
    bare = [_bare(name) for name in group]
    if len(set(bare)) == 1:
        return bare[0]
    start = _shared_start(bare)
    end = _shared_start([name[len(start) :][::-1] for name in bare])[::-1]
    glob = f"{start}*{end}"
    if len(start + end) < _MIN_COMMON or any(char in start + end for char in "*?["):
        return None
    source = SourceSpec(match=glob)
    others = names - set(group)
    return None if any(source.matches(name) for name in others) else glob


def _shared_start(texts: Sequence[str]) -> str:
    """What all texts begin with."""
    first, last = min(texts), max(texts)
    same = (at for at, char in enumerate(first) if last[at : at + 1] != char)
    return first[: next(same, len(first))]


def _bare(name: str) -> str:
    name = name.rpartition("/")[2]
    for suffix in COMPRESSED_SUFFIXES:
        name = name.removesuffix(suffix)
    return name
