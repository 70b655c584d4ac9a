"""Local tokenizers: a Hugging Face `tokenizer.json` or a tiktoken rank file; nothing is fetched."""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final

from kvtrace.errors import Location, UsageError

_PATTERNS: Final = {
    "o200k": (
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
        r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    ),
    "cl100k": (
        r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+|"
        r" ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s"
    ),
}
"""How tiktoken splits text before it merges; the rank file does not say it. Most other rank files
(Llama 3, Qwen) split as cl100k does."""
_NAMES: Final = "`--tokenizer` names a Hugging Face tokenizer.json or a tiktoken rank file"
_HINT: Final = "pip install 'kvtrace[tokenizers]'"


@dataclass(frozen=True, slots=True)
class Tokenizer:
    """Turns text into token ids, special tokens taken as plain text."""

    name: str
    """What notes call it: kind and file name."""
    encode: Callable[[str], Sequence[int]]


def check_tokenizer(path: str) -> None:
    """Refuse a path that names no file, before anything is read.

    Raises:
        UsageError: KVT-I021.
    """
    if not Path(path).is_file():
        raise _unreadable(path, "there is no such file")


def describe_tokenizer(path: str) -> str:
    """File name and BLAKE2b-128 of the content: what decides the keys, without the folder.

    Raises:
        UsageError: KVT-I021.
    """
    try:
        digest = hashlib.blake2b(Path(path).read_bytes(), digest_size=16).hexdigest()
    except OSError as cause:
        raise _unreadable(path, cause.strerror) from cause
    return f"{Path(path).name} {digest}"


@lru_cache(maxsize=2)
def load_tokenizer(path: str) -> Tokenizer:
    """The tokenizer in a local file.

    Raises:
        UsageError: KVT-I021 no such file, KVT-I022 no tokenizer in it, KVT-I023 the package that
            reads it is not installed.
    """
    file = Path(path)
    try:
        with file.open("rb") as opened:
            start = opened.read(64).lstrip()
    except OSError as cause:
        raise _unreadable(path, cause.strerror) from cause
    try:
        return _hugging_face(file) if start.startswith(b"{") else _tiktoken(file)
    except ImportError as cause:
        raise UsageError(
            "KVT-I023",
            f"reading this tokenizer needs the package `{cause.name}`",
            where=Location(path),
            hint=_HINT,
        ) from cause


def _hugging_face(file: Path) -> Tokenizer:
    from tokenizers import Tokenizer as HuggingFace

    try:
        loaded = HuggingFace.from_file(str(file))
    except Exception as cause:  # the Rust side raises plain Exception
        raise _not_one(file) from cause
    loaded.no_truncation()
    loaded.no_padding()

    def encode(text: str) -> Sequence[int]:
        ids: list[int] = loaded.encode(text, add_special_tokens=False).ids
        return ids

    return Tokenizer(f"Hugging Face {file.name}", encode)


def _tiktoken(file: Path) -> Tokenizer:
    from tiktoken import Encoding

    family = "o200k" if "o200k" in file.name else "cl100k"
    ranks: dict[bytes, int] = {}
    try:
        for line in file.read_bytes().splitlines():
            if line:
                token, rank = line.split()
                ranks[base64.b64decode(token, validate=True)] = int(rank)
        encoding = Encoding(
            file.name, pat_str=_PATTERNS[family], mergeable_ranks=ranks, special_tokens={}
        )
    except (ValueError, binascii.Error, OSError) as cause:
        raise _not_one(file) from cause
    if len(ranks) < 256:
        raise _not_one(file)
    return Tokenizer(f"tiktoken {file.name}, text split as {family} does", encoding.encode_ordinary)


def _unreadable(path: str, cause: str | None) -> UsageError:
    return UsageError(
        "KVT-I021",
        "the tokenizer file cannot be read",
        where=Location(path),
        cause=cause,
        hint=_NAMES,
    )


def _not_one(file: Path) -> UsageError:
    return UsageError(
        "KVT-I022",
        "the file holds no tokenizer",
        where=Location(str(file)),
        hint=_NAMES,
    )
