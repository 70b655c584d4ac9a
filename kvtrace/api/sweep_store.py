"""What a sweep has replayed already: one small file a replay, by a digest of all that it follows
from. A sweep that was interrupted, or that gains values, replays only what is not there.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Final

from kvtrace import __version__
from kvtrace.api.replay_runs import Bench, Ready
from kvtrace.cost.evidence import Constant
from kvtrace.replay.scenario import Scenario
from kvtrace.schema.replayed import REPLAY_SWEEP
from kvtrace.store.dataset import Dataset
from kvtrace.store.files import write_atomically
from kvtrace.store.lock import unwritable

FOLDER: Final = "sweeps"
_KNOWN_BEFORE: Final = ("run", "scenario", "axis", "value", "changes", "content")
_NO_CONTENT: Final = ("option_id", "title", "prefill", "decode", "step")
"""Fields of a scenario that are names, or follow from the deployment."""
KEPT: Final = tuple(c.name for c in REPLAY_SWEEP.columns if c.name not in _KNOWN_BEFORE)
"""Columns that a replay gives; the others say which one it is."""


def content_of(bench: Bench, one: Ready, room_tokens: float) -> str:
    """The digest of a replay's inputs: requests, load, scenario, deployment, and this version."""
    deployment, fleet = one.setup.deployment, one.setup.fleet
    document: dict[str, object] = {
        "version": __version__,
        "dataset": bench.dataset.manifest.digest,
        "depth": bench.settings.text("depth"),
        "seed": bench.seed,
        "room_tokens": room_tokens,
        "load": asdict(one.load),
        "scenario": {
            field.name: repr(getattr(one.scenario, field.name))
            for field in fields(Scenario)
            if field.name not in _NO_CONTENT
        },
        "deployment": [
            *(deployment.llm.name, deployment.tp, deployment.weight_dtype, deployment.kv_dtype),
            *(deployment.provider, deployment.pp, deployment.dp, deployment.layout.ep),
            *(deployment.hbm_cache_bytes, one.scenario.instances),
            *(repr(deployment.prefill.prefill_s(tokens, 0)) for tokens in (1, 1000, 100_000)),
        ],
        "constants": _values([*deployment.constants(), *fleet.constants()]),
    }
    text = json.dumps(document, sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def _values(constants: Sequence[Constant]) -> list[list[object]]:
    return [[one.id, one.value] for one in constants]


class SweepStore:
    """The files of replays beside a dataset."""

    def __init__(self, dataset: Dataset) -> None:
        self._folder = dataset.directory.parent / FOLDER

    def read(self, content: str) -> dict[str, object] | None:
        """What the replay of this content gave, if it was replayed; null for a damaged file."""
        try:
            row = json.loads(self._path(content).read_bytes())
        except (OSError, ValueError):
            return None
        return row if isinstance(row, dict) and set(row) == set(KEPT) else None

    def write(self, content: str, row: Mapping[str, object]) -> None:
        """Keep what a replay gave.

        Raises:
            OutputError: the folder cannot be written.
        """
        path = self._path(content)
        kept = {name: row[name] for name in KEPT}
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, json.dumps(kept, sort_keys=True, allow_nan=False).encode())
        except OSError as error:
            raise unwritable(path, error) from error

    def _path(self, content: str) -> Path:
        return self._folder / f"{content}.json"
