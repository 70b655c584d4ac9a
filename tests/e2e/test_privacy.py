"""What names a person, a prompt, a key or a host goes in and comes out nowhere.

Every fixture of every format is planted with canaries (`canaries`) and goes through a whole run.
"""

from __future__ import annotations

import base64
import json
import re
import urllib.parse
from pathlib import Path

import polars as pl
import pytest

from kvtrace import api
from kvtrace.config import resolve_settings
from kvtrace.errors import KvtraceError
from tests.e2e.canaries import CANARIES, USER, found_in, planted, users_in, written_texts
from tests.e2e.conftest import Run
from tests.formats.reading import DATA, decoded

FIXTURES = sorted(path for path in DATA.rglob("*") if path.is_file() and path.stat().st_size)
SALT = "a salt of the test"
_NAME_COLUMNS = ("llm", "adapter")
_NAMED = re.compile(rf"(?:llm |host \d+ |^){USER}\d{{4}}", re.MULTILINE)
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
    flags: dict[str, str | float | None] = {"salt": SALT, "allow_inert_pickle": True}
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


# The command line, whole


ENGINE_AND_GATEWAY = (
    "litellm/good.jsonl",
    "vllm_text/good_v1.log",
    "sglang_text/good_requests.log",
    "otlp_genai/genai.json",
    "prometheus/vllm.prom",
    "kv_events/decoded.jsonl",
    "sagemaker_capture/good.jsonl",
    "langfuse/good.jsonl",
    "lmcache_text/good_engine.log",
)
VERBS = ("ingest", "analyze", "sniff")


def run_of(kvtrace: Run, logs: Path, output: Path, temporary: Path) -> dict[str, str]:
    """All that the verbs print and write of some logs."""
    texts: dict[str, str] = {}
    temporary.mkdir()
    for verb in VERBS:
        more = () if verb == "sniff" else ("-o", output, "--max-reject-rate", "1", "--salt", SALT)
        done = kvtrace(verb, logs, *more, environment={"TMPDIR": str(temporary)})
        assert done.returncode == 0, done.stderr
        texts[f"{verb} stdout"], texts[f"{verb} stderr"] = done.stdout, done.stderr
    texts |= written_texts(output)
    assert list(temporary.iterdir()) == []  # nothing stays where it was spilled
    return texts


@pytest.mark.slow
@pytest.mark.parametrize("name", ENGINE_AND_GATEWAY)
def test_no_canary_gets_out_of_an_audit(name: str, kvtrace: Run, tmp_path: Path) -> None:
    plant(DATA / name, tmp_path / "logs")
    texts = run_of(kvtrace, tmp_path / "logs", tmp_path / "out", tmp_path / "tmp")
    assert {"audit.json", "report.html", "dataset/manifest.json", "dataset/open.sql"} <= set(texts)
    assert leaks(texts, names_kept(tmp_path / "out")) == {}


def test_no_canary_gets_out_of_all_logs_together(kvtrace_process: Run, tmp_path: Path) -> None:
    for name in ENGINE_AND_GATEWAY:
        plant(DATA / name, tmp_path / "logs" / name.replace("/", "-"))
    texts = run_of(kvtrace_process, tmp_path / "logs", tmp_path / "out", tmp_path / "tmp")
    audit = json.loads(texts["audit.json"])
    assert audit["data"]["rejected"] > 100
    assert audit["data"]["requests"] > 100
    assert leaks(texts, names_kept(tmp_path / "out")) == {}


def test_no_canary_gets_into_an_error(kvtrace: Run, tmp_path: Path) -> None:
    lines = "".join(
        json.dumps({"litellm_call_id": name, "startTime": name}) + "\n" for name in CANARIES
    )
    (tmp_path / "log.jsonl").write_text(lines * 200)
    refused = kvtrace("analyze", tmp_path / "log.jsonl", "-o", tmp_path / "out")
    assert refused.returncode == 3
    assert "error[KVT-I00" in refused.stderr
    (tmp_path / "prose.txt").write_text("\n".join(CANARIES * 50))
    unknown = kvtrace("ingest", tmp_path / "prose.txt", "-o", tmp_path / "other")
    assert "error[KVT-I002]" in unknown.stderr
    texts = {"refused": refused.stderr + refused.stdout, "unknown": unknown.stderr + unknown.stdout}
    assert leaks(texts, set()) == {}


# The keys of prompts


def block_hashes(kvtrace: Run, output: Path, *flags: str) -> tuple[list[int], str]:
    """(block keys of a planted gateway log, the dataset's digest)."""
    logs = output.parent / "prompts.jsonl"
    messages = [{"role": "user", "content": f"{canary} " * 20} for canary in CANARIES]
    records = [
        {
            "litellm_call_id": str(number),
            "startTime": 1_780_000_000 + number,
            "endTime": 1_780_000_001 + number,
            "messages": messages[: number + 1],
        }
        for number in range(len(CANARIES))
    ]
    logs.write_text("\n".join(map(json.dumps, records)))
    done = kvtrace("ingest", logs, "-o", output, "--json", *flags)
    assert done.returncode == 0, done.stderr
    parts = sorted((output / "dataset" / "keys").glob("*.parquet"))
    keys = pl.concat(map(pl.read_parquet, parts)).sort("block")["chained_hash"]
    return keys.to_list(), json.loads(done.stdout)["digest"]


def test_block_keys_of_prompts_follow_the_salt(kvtrace: Run, tmp_path: Path) -> None:
    one = block_hashes(kvtrace, tmp_path / "one", "--salt", SALT)
    again = block_hashes(kvtrace, tmp_path / "again", "--salt", SALT)
    other = block_hashes(kvtrace, tmp_path / "other", "--salt", SALT + "!")
    own = block_hashes(kvtrace, tmp_path / "own")
    assert len(one[0]) > 50
    assert again == one  # the same salt joins runs
    assert not set(one[0]) & set(other[0])
    assert not set(own[0]) & set(one[0] + other[0])  # random for each output folder
    assert block_hashes(kvtrace, tmp_path / "own") == own  # and kept there
    assert one[1] == other[1] == own[1]


# The search itself


@pytest.mark.parametrize("canary", CANARIES)
def test_the_search_finds_every_form(canary: str) -> None:
    data = canary.encode()
    for text in (
        canary,
        canary.upper(),
        canary.casefold(),
        json.dumps(canary),
        data.hex(),
        urllib.parse.quote(canary),
        *(base64.b64encode(b"x" * shift + data).decode() for shift in range(3)),
    ):
        assert found_in(f"before {text} after"), text
    assert not found_in("a report of nobody's logs")
    assert users_in(f"{USER.upper()}0001") == {f"{USER}0001"}
