"""Rank labels of SGLang's prefix, and which rank of a data-parallel engine speaks for it."""

from __future__ import annotations

import functools
import re
from typing import Final, NamedTuple

_RANK = re.compile(r"(DP|PP|TP|EP)([0-9]{1,5})")


EngineKey = tuple[str | None, str | None]
"""(process that wrote the line, engine): logs of several servers may lie in one file."""


class Ranks(NamedTuple):
    """The ranks of one line; None where the label does not have them."""

    dp: int | None = None
    pp: int | None = None
    tp: int | None = None
    gpu: str | None = None
    """Label of 0.2.x, `gpu=0`."""

    @property
    def engine(self) -> str | None:
        """The engine as samples name it; None where there is only one."""
        return self.gpu if self.dp is None else f"DP{self.dp}"


_UNLABELLED: Final = Ranks()


@functools.lru_cache(maxsize=1024)
def parse_ranks(label: str | None) -> Ranks:
    """The ranks of a label such as `DP0 PP0 TP1 EP1`."""
    if label is None:
        return _UNLABELLED
    if label.startswith("gpu="):
        return Ranks(gpu=label)
    found = {name: int(number) for name, number in _RANK.findall(label)}
    return Ranks(found.get("DP"), found.get("PP"), found.get("TP"))


class Speakers:
    """Of the ranks that print the same batch, the one that counts: the first seen of an engine.

    Normally only attention rank 0 of each engine prints batches. With data-parallel attention its
    TP number is not 0 (`DP3 TP3`), so the number alone does not tell.
    """

    def __init__(self) -> None:
        self._of_engine: dict[EngineKey, tuple[int | None, int | None]] = {}

    def speaks(self, key: EngineKey, ranks: Ranks) -> bool:
        """Whether the line of these ranks counts; False: another rank says the same."""
        ours = (ranks.pp, ranks.tp)
        return self._of_engine.setdefault(key, ours) == ours

    def restart(self) -> None:
        """The server started again."""
        self._of_engine.clear()

    def engines(self) -> int:
        """Data-parallel engines seen."""
        return sum(engine is not None for _writer, engine in self._of_engine)
