"""Block ids that are text: numbers where they are written as such, else hashed as they stand.

No id goes through a float, and different texts never become the same number: a decimal text is a
number only in its one usual spelling (`7`, not `007`), so an id of hexadecimal digits without `0x`
keeps its own key even where all its digits happen to be decimal.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import xxhash

from kvtrace.ingest.contract import ReadContext

_DECIMAL: Final = re.compile(r"0|[1-9][0-9]{0,19}")
_HEX: Final = re.compile(r"0[xX][0-9a-fA-F]{1,16}")
_UINT64: Final = 1 << 64


def chain_content_ids(content_ids: Iterable[int]) -> list[int]:
    """Prefix-chained 64-bit keys of per-block content ids, unsigned 64-bit.

    Ids that are chained already stay so: equal ids stand behind equal prefixes, and get equal keys.

    Formula: key_0 = xxh3_64(id_0), key_i = xxh3_64(id_i, seed = key_(i-1)); ids as 8 bytes, little
    endian. The chain is not keyed: the ids are already anonymous in the source.
    """
    keys: list[int] = []
    previous = 0
    for content_id in content_ids:
        previous = xxhash.xxh3_64_intdigest(content_id.to_bytes(8, "little"), previous)
        keys.append(previous)
    return keys


@dataclass(slots=True)
class BlockIds:
    """Turns the block ids of one file into 64-bit keys and counts how they were written."""

    numeric_rows: int = 0
    """Rows whose ids are numbers."""
    text_rows: int = 0
    """Rows with ids that are text."""
    opaque_ids: int = 0
    """Texts that are no number."""

    def text_key(self, text: str) -> int:
        """The key of an id that is text: its number, or a 64-bit hash of the text.

        The hash has no salt: the ids are hashes already, and equal ids must match between files.
        """
        if _DECIMAL.fullmatch(text) and (number := int(text)) < _UINT64:
            return number
        if _HEX.fullmatch(text):
            return int(text, 16)
        self.opaque_ids += 1
        digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
        return int.from_bytes(digest, "little")

    def count(self, ids: Sequence[object]) -> None:
        """Count the row that has these ids."""
        has_text = any(isinstance(item, str) for item in ids)
        self.text_rows += has_text
        self.numeric_rows += bool(ids) and not has_text

    def judge(self, context: ReadContext) -> None:
        """Say how the ids were written where that is not a plain number."""
        if self.opaque_ids and self.numeric_rows:
            context.note(
                "mixed_block_ids",
                f"block ids are numbers in {self.numeric_rows:,} rows and text in "
                f"{self.text_rows:,}: a block that is written both ways is counted twice",
                severity="warning",
            )
        elif self.opaque_ids:
            context.note(
                "block_ids_hashed",
                "block ids are text that is no number; each is replaced by a 64-bit hash of it",
            )
