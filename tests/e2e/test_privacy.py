"""What names a person, a prompt, a key or a host goes in and comes out nowhere.

Every fixture of every format is planted with canaries (`canaries`) and goes through a whole run.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import polars as pl
import pytest

from kvtrace import api
from kvtrace.config import resolve_settings
from kvtrace.errors import KvtraceError
from tests.e2e.canaries import USER, found_in, planted, users_in, written_texts
from tests.formats.reading import DATA, decoded

FIXTURES = sorted(path for path in DATA.rglob("*") if path.is_file() and path.stat().st_size)
SALT = "a salt of the test"
_NAME_COLUMNS = ("llm", "adapter")
_NAMED = re.compile(rf"llm {USER}\d{{4}}|^{USER}\d{{4}}$", re.MULTILINE)
"""An engine's name that holds that of its model, and a network device of a scraped machine."""


def plant(path: Path, folder: Path) -> None:
    """Write the planted twins of a fixture."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in planted(path, decoded(path)):
        (folder / name).write_bytes(data)


def names_kept(output: Path) -> set[str]:
    """The user ids that stand where a model, an adapter or a device is named."""
    texts = [
        pl.read_parquet(path, columns=list(_NAME_COLUMNS)).write_ndjson()
        for path in output.rglob("requests/*.parquet")
    ]
    for path in output.rglob("samples/*.parquet"):
        engines = pl.read_parquet(path, columns=["engine"])["engine"].drop_nulls().unique()
        texts += _NAMED.findall("\n".join(engines))
    manifest = output / "dataset" / "manifest.json"
    sources = json.loads(manifest.read_text())["sources"] if manifest.exists() else []
    named = [str(source["engine_facts"].get("llm")) for source in sources]
    return users_in("\n".join([*texts, *named]))


def leaks(texts: dict[str, str], allowed: set[str]) -> dict[str, object]:
    """Where canaries are, and what."""
    found: dict[str, object] = {
        name: seen for name, text in texts.items() if (seen := found_in(text))
    }
    for name, text in texts.items():
        users = users_in(text) - allowed
        if users:
            found[f"{name} (ids)"] = sorted(users)[:5]
    return found


@pytest.mark.parametrize("path", FIXTURES, ids=lambda path: str(path.relative_to(DATA)))
def test_no_canary_gets_out_of_an_ingest(path: Path, tmp_path: Path) -> None:
    plant(path, tmp_path / "logs")
    output = tmp_path / "out"
    flags = {"salt": SALT, "allow_inert_pickle": True}
    texts: dict[str, str] = {}
    for limit in (1.0, 0.0):  # the second is the error that names the first offenders
        settings = resolve_settings({**flags, "max_reject_rate": limit}, environment={})
        try:
            outcome = api.ingest([str(tmp_path / "logs")], output=output, settings=settings)
        except KvtraceError as error:
            texts[f"error {limit}"] = f"{error!r} {error} {error.render()}"
        else:
            texts[f"outcome {limit}"] = outcome.to_json() + "\n".join(outcome.summary())
        texts |= written_texts(output)
    sniffed = api.sniff([str(tmp_path / "logs")])
    texts["sniff"] = sniffed.to_json()
    assert leaks(texts, names_kept(output)) == {}
