"""`kvtrace init`: the file reads back, marks stay, nothing hangs, nothing is overwritten."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from kvtrace import api
from kvtrace.api.fleet_drafts import answer, draft_fleet
from kvtrace.api.setup import choose_deployment, choose_fleet
from kvtrace.cli import init as verb
from kvtrace.cli.app import app
from kvtrace.config import resolve_settings
from kvtrace.cost.deployment import build_deployment
from kvtrace.cost.evidence import Constant
from kvtrace.cost.fleet import Fleet, default_fleet, load_fleet
from kvtrace.cost.fleet.draft import FleetDraft, bytes_text, rate_text
from kvtrace.cost.fleet.file import read_fleet_file
from kvtrace.errors import UsageError
from kvtrace.units import parse_bytes, parse_rate
from tests.conftest import Analysed


@pytest.fixture
def base() -> Fleet:
    return default_fleet(build_deployment("Meta-Llama-3.1-70B", "H100-SXM5", tp=4), 3)


def written(folder: Path, draft: FleetDraft) -> Path:
    path = folder / "fleet.toml"
    path.write_text(draft.text())
    return path


def constants(fleet: Fleet) -> dict[str, tuple[float, str, float | None]]:
    return {one.id: (one.value, one.kind, one.high) for one in fleet.constants()}


def test_a_draft_that_nobody_touched_changes_nothing(base: Fleet, tmp_path: Path) -> None:
    read = load_fleet(written(tmp_path, FleetDraft(base)), base)
    assert constants(read) == constants(base)
    assert [a.kind for a in read.answers()] == ["assumed"] * 5
    for one in fields(Fleet):
        value, before = getattr(read, one.name), getattr(base, one.name)
        if not isinstance(value, Constant) and one.name not in ("network", "contract", "parallel"):
            assert getattr(value, "value", value) == getattr(before, "value", before), one.name


def test_an_answer_is_stated_and_the_rest_stays_unconfirmed(base: Fleet, tmp_path: Path) -> None:
    draft = answer(answer(FleetDraft(base), "pool.dram", "8TiB"), "gpu_contract.kind", "owned")
    draft = draft.confirmed("pool.nodes")
    fleet = load_fleet(written(tmp_path, draft), base)
    assert (fleet.pool_dram_bytes.value, fleet.pool_dram_bytes.kind) == (8 * 2**40, "given")
    assert (fleet.contract.kind.value, fleet.contract.kind.kind) == ("owned", "given")
    assert (fleet.pool_nodes.value, fleet.pool_nodes.kind) == (2, "given")
    assert fleet.pool_nics_per_node.kind == "assumed"
    assert draft.count("stated") == 3


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("pool.dram", "8"),
        ("pool.nodes", "many"),
        ("gpu_contract.kind", "leased"),
        ("gpu_contract.until", "soon"),
        ("network.is_built", "maybe"),
        ("pool.node", "2"),
    ],
)
def test_an_answer_that_cannot_be_used_is_refused(base: Fleet, key: str, text: str) -> None:
    with pytest.raises(UsageError):
        answer(FleetDraft(base), key, text)


def test_amounts_read_back_to_the_same_number() -> None:
    for size in (0, 1, 2**40, 1_099_500_000_000, 7.68e12, 123_456_789):
        assert parse_bytes(bytes_text(size).strip('"')) == size
    for rate in (50e9, 12.5e9, 43.2e9, 213e9):
        assert parse_rate(rate_text(rate).strip('"')) == pytest.approx(rate, rel=1e-8)
    assert bytes_text(2**40) == '"1TiB"'
    assert rate_text(50e9) == '"400Gb/s"'


def test_logs_answer_what_they_say(samples: Analysed) -> None:
    text = draft_fleet(samples.folder).text()
    assert "# from logs: tensor parallel size 1" in text
    again = draft_fleet(samples.folder / "audit.json").text()
    assert "# from logs: tensor parallel size 1" in again
    # The samples cover less than a day: the log does not say what a busy day is like.
    assert "# peak_factor = 1.5" in text


def test_what_the_draft_holds_is_what_would_be_chosen_without_it(
    samples: Analysed, tmp_path: Path
) -> None:
    path = written(tmp_path, draft_fleet(samples.folder))
    manifest = api.open_dataset(samples.folder).manifest
    found = []
    for settings in (resolve_settings(), resolve_settings({"fleet": str(path)})):
        deployment, chosen = choose_deployment(settings, manifest)
        setup = choose_fleet(chosen, deployment, None, manifest)
        unconfirmed = {one.name for one in setup.settings if not one.is_confirmed}
        found.append((deployment.tp, deployment.pp, constants(setup.fleet), unconfirmed))
    assert found[0] == found[1]


def test_nothing_is_asked_without_a_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    def refuse(*_args: object, **_named: object) -> str:
        raise AssertionError("asked without a terminal")

    monkeypatch.setattr(typer, "prompt", refuse)
    ran = CliRunner().invoke(app, ["init"])
    assert ran.exit_code == 0, ran.output
    assert "unconfirmed" in (tmp_path / "fleet.toml").read_text()
    before = (tmp_path / "fleet.toml").read_text()
    refused = CliRunner().invoke(app, ["init"])
    assert isinstance(refused.exception, UsageError)
    assert refused.exception.code == "KVT-U091"
    assert (tmp_path / "fleet.toml").read_text() == before
    forced = CliRunner().invoke(app, ["init", "--force", "--instances", "5"])
    assert forced.exit_code == 0
    assert "count = 5" in (tmp_path / "fleet.toml").read_text()


def test_a_terminal_is_asked_until_the_answer_can_be_used(
    base: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    replies = {
        "pool.dram": iter(["lots", "8TiB"]),
        "gpu_contract.kind": iter(["reserved"]),
        "gpu_contract.until": iter(["2027-06-30"]),
        "pool.nodes": iter(["y"]),
    }

    def reply(question: str, **_named: object) -> str:
        return next(replies.get(question.partition(":")[0], iter([""])))

    monkeypatch.setattr(typer, "prompt", reply)
    draft = verb._ask(FleetDraft(base))
    assert {path: one.text for path, one in draft.said.items()} == {
        "pool.dram": '"8TiB"',
        "pool.nodes": "2",
        "gpu_contract.kind": '"reserved"',
        "gpu_contract.until": "2027-06-30",
    }


OWN = """
pool_nodes = 3

[gpu_nodes]
gpus = 4          # ours: half a chassis
dram_free = "96GiB"
nvme_free = "7TB" # unconfirmed: nobody looked

[slo]
ttft = "2s"       # from logs: the dashboard says it

[gpu_contract]
kind = "reserved"
until = 2027-06-30

[prices]
gpu_usd_per_hour = { value = 2.4, low = 2.0, high = 3.0 }
nic_100g_usd = 900

[prices.dram_usd_per_gb]
value = 14.5
high = 20.0
"""


def audited_with(samples: Analysed, folder: Path, fleet: Path) -> Path:
    """The audit of the samples, as if it had been made with this fleet file."""
    record = json.loads((samples.folder / "audit.json").read_text())
    known = next(one for one in record["assumptions"] if one["id"] == "llm")
    told = {"id": "fleet", "value": str(fleet), "is_confirmed": True, "origin": "flag"}
    others = [one for one in record["assumptions"] if one["id"] != "fleet"]
    record["assumptions"] = [*others, known | told]
    path = folder / "audit.json"
    path.write_text(json.dumps(record))
    return path


def test_what_a_fleet_file_stated_for_the_audit_stands_in_the_draft(
    samples: Analysed, tmp_path: Path
) -> None:
    own = tmp_path / "own.toml"
    own.write_text(OWN)
    done = api.init(audited_with(samples, tmp_path, own), output=tmp_path / "fleet.toml")
    before, after = read_fleet_file(own).stated, read_fleet_file(done.path).stated
    for path, one in before.items():
        again = after[path]
        assert (again.value, again.low, again.high) == (one.value, one.low, one.high), path
        assert again.standing == one.standing, path
    assert "# from logs: the dashboard says it" in done.text
    assert done.absent == ""


def test_a_fleet_file_that_is_gone_is_said_and_not_passed_over(
    samples: Analysed, tmp_path: Path
) -> None:
    gone = tmp_path / "gone.toml"
    done = api.init(audited_with(samples, tmp_path, gone), output=tmp_path / "fleet.toml")
    assert done.absent == str(gone)
    assert any("not at hand" in line for line in done.summary())
