"""`kvtrace synth`: samples, profiles, and datasets that make a profile."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import msgspec

from kvtrace.synth import FORMATS
from kvtrace.synth import profiletables as tables
from kvtrace.synth.formats.unwritten import UNWRITTEN
from kvtrace.synth.profilefile import parse_profile
from tests.conftest import REPO
from tests.e2e.conftest import Run
from tests.unit.synth_carries import docs_row

PAGE = (REPO / "docs" / "synth.md").read_text(encoding="utf-8")


def _example() -> str:
    found = re.search(r"```toml[^\n]*\n(.*?)```", PAGE, re.DOTALL)
    assert found is not None
    return found[1]


def test_the_profile_of_the_docs_is_one() -> None:
    table = parse_profile(tomllib.loads(_example()), "docs/synth.md")
    assert [one.name for one in table.workload] == ["chat", "agent"]


def test_the_docs_name_every_key_and_every_format() -> None:
    structs = [
        found
        for found in vars(tables).values()
        if isinstance(found, type) and issubclass(found, msgspec.Struct)
    ]
    keys = {field.encode_name for one in structs for field in msgspec.structs.fields(one)}
    assert len(keys) > 40
    assert sorted(key for key in keys if not re.search(rf"\b{key}\b", PAGE)) == []
    assert sorted(name for name in FORMATS if docs_row(name) not in PAGE) == []
    rows = [f"| `{name}` | {reason} |" for name, reason in UNWRITTEN.items()]
    assert [row for row in rows if row not in PAGE] == []


def test_samples_stay_what_they_were(kvtrace: Run, tmp_path: Path) -> None:
    done = kvtrace("synth", "-o", tmp_path, "--seed", "7")
    assert done.returncode == 0, done.stderr
    plain = REPO / "sample_traces" / "request-metrics.jsonl"
    assert (tmp_path / plain.name).read_bytes() == plain.read_bytes()


def test_a_profile_gives_files_that_join(kvtrace: Run, tmp_path: Path) -> None:
    profile = tmp_path / "profile.toml"
    # A stated reuse needs more than 200 requests: so few hardly repeat anything.
    profile.write_text(re.sub(r"(?m)^reuse = .*$", "", _example()))
    arguments = ("--profile", profile, "--format", "mooncake", "--format", "litellm")
    done = kvtrace("synth", *arguments, "--requests", "200", "-o", tmp_path / "a")
    assert done.returncode == 0, done.stderr
    assert [Path(line).name for line in done.stdout.split()] == ["mooncake.jsonl", "litellm.jsonl"]
    again = kvtrace("synth", *arguments, "--requests", "200", "-o", tmp_path / "b")
    assert again.returncode == 0
    other = kvtrace("synth", *arguments, "--requests", "200", "-o", tmp_path / "c", "--seed", "8")
    assert other.returncode == 0
    texts = [(tmp_path / name / "mooncake.jsonl").read_bytes() for name in ("a", "b", "c")]
    assert texts[0] == texts[1] != texts[2]
    ingested = kvtrace("ingest", tmp_path / "a", "-o", tmp_path / "out")
    assert ingested.returncode == 0, ingested.stderr
    assert "requests 200 " in ingested.stdout


def test_a_dataset_gives_a_profile_and_says_how_like_it_is(kvtrace: Run, tmp_path: Path) -> None:
    done = kvtrace("ingest", REPO / "sample_traces", "-o", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    like = kvtrace("synth", "--from", tmp_path / "out", "-o", tmp_path / "like")
    assert like.returncode == 0, like.stderr
    assert "reuse, unlimited cache: 80." in like.stderr
    assert "(dataset 80.2%)" in like.stderr
    assert re.search(r"capacity curve: at most \d+\.\d points", like.stderr)
    written = tmp_path / "like" / "profile.toml"
    assert str(written) in like.stdout
    again = kvtrace("synth", "--profile", written, "-o", tmp_path / "again")
    assert again.returncode == 0, again.stderr
    traces = [(tmp_path / name / "mooncake.jsonl").read_bytes() for name in ("like", "again")]
    assert traces[0] == traces[1]


def test_json_names_the_files(kvtrace: Run, tmp_path: Path) -> None:
    done = kvtrace("synth", "-o", tmp_path, "--format", "azure", "--requests", "5", "--json")
    assert json.loads(done.stdout)["paths"] == [str(tmp_path / "azure.csv")]


def test_the_help_names_what_is_written_and_what_is_not(kvtrace: Run) -> None:
    done = kvtrace("synth", "--help")
    assert done.returncode == 0, done.stderr
    _, _, rest = done.stdout.partition("Formats that are written: ")
    written, _, others = rest.partition("Not written")
    others = others.partition("Examples:")[0]
    assert set(re.findall(r"[a-z]\w+", written)) == set(FORMATS)
    assert set(UNWRITTEN) <= set(re.findall(r"[a-z]\w+", others))


def test_what_cannot_be_written_is_said(kvtrace: Run, tmp_path: Path) -> None:
    unknown = kvtrace("synth", "--format", "vllm_txt", "-o", tmp_path)
    assert unknown.returncode == 2
    assert unknown.stderr.startswith("error[KVT-U064]")
    texts = kvtrace("synth", "--format", "chat_text", "-o", tmp_path)
    assert texts.returncode == 2
    assert UNWRITTEN["chat_text"] in texts.stderr
    both = kvtrace("synth", "--profile", "a.toml", "--from", "b", "-o", tmp_path)
    assert both.returncode in {2, 3}
    none = kvtrace("synth", "--profile", tmp_path / "none.toml", "-o", tmp_path)
    assert none.returncode == 2
    assert none.stderr.startswith("error[KVT-U060]")
