"""Names of models and adapters without the folders of their files, which may name people."""

from __future__ import annotations

import re
from typing import Final

import polars as pl

_COLUMNS: Final = ("llm", "adapter")
_PATH = re.compile(r"[/.~]|[A-Za-z]:[\\/]|[a-z][a-z0-9+.-]{1,20}://|.*\\", re.DOTALL)


def base_name(name: str) -> str:
    """The last part of a path or URL; any other name, such as `org/model`, as it is."""
    if _PATH.match(name) is None:
        return name
    return re.split(r"[/\\]", name.rstrip("/\\"))[-1]


def without_paths(requests: pl.DataFrame) -> pl.DataFrame:
    """The same rows; where a model or an adapter was named by its file, the file's name."""
    for column in _COLUMNS:
        names = requests[column].unique().drop_nulls().to_list()
        shorter = {name: base_name(name) or None for name in names if _PATH.match(name)}
        if shorter:
            requests = requests.with_columns(pl.col(column).replace(shorter))
    return requests
