"""docs/model/: every command prints what the page shows, and its figures are those of the prose."""

from __future__ import annotations

import importlib
import json
from types import ModuleType

import pytest
from typer.testing import CliRunner

from kvtrace.cli.app import app
from tests.conftest import REPO

PAGES = ("ledger.md", "llms.md")


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(REPO / "scripts"))
    return importlib.import_module("gen_model_docs")


def _run(*arguments: str) -> str:
    done = CliRunner().invoke(app, [*arguments], catch_exceptions=False)
    assert done.exit_code == 0
    return done.stdout


@pytest.mark.parametrize("name", PAGES)
def test_commands_print_what_the_page_shows(name: str, script: ModuleType) -> None:
    page = (REPO / "docs" / "model" / name).read_text(encoding="utf-8")
    assert "```console\n$ kvtrace" in page
    assert page == script.render(page), "run scripts/gen_model_docs.py"


def test_the_worked_example_moves_655_mb_and_recomputes_in_hundreds_of_ms() -> None:
    words = "ledger --llm Llama-3.1-70B --hardware A100 --tp 4 --tokens 2001 --cached 2000"
    rates = "--path 20GB/s --path 4x20GB/s,1GB/s --json"
    document = json.loads(_run(*words.split(), *rates.split()))
    request = document["request"]
    # 2 000 tokens x 80 layers x 2 x 8 heads x 128 x 2 bytes
    assert request["kv_bytes"] == 655_360_000
    assert document["kv_bytes_per_token"] == 320 * 1024
    moves = {path["path_id"]: path["move_s"]["value"] for path in request["paths"]}
    assert moves == {
        "20GB/s": pytest.approx(0.032768),
        "4x20GB/s": pytest.approx(0.008192),
        "1GB/s": pytest.approx(0.65536),
    }
    # never faster than the arithmetic of four A100 at their peak: 2 x 68.45e9 x 2 000 FLOP
    assert request["recompute_s"]["low"] > 2 * 68.45e9 * 2_000 / (4 * 312e12)
    assert request["recompute_s"]["high"] < 1.0
    assert request["paths"][2]["verdict"] == "recompute_wins"


def test_a_small_model_prefills_in_tens_of_milliseconds() -> None:
    words = "ledger --llm Llama-3.2-1B --hardware A100 --tp 1 --tokens 2001 --cached 2000 --json"
    request = json.loads(_run(*words.split()))["request"]
    assert 0.01 < request["prefill_full_s"] < 0.06


@pytest.mark.parametrize(
    ("llm", "gpu", "path"),
    [
        ("Llama-3.1-70B", "H100-SXM5", "pool_tcp"),
        ("DeepSeek-V3", "H200-SXM", "pool_tcp"),
        ("DeepSeek-V3", "H200-SXM", "object_store"),
        ("Qwen-72B", "H100-SXM5", "object_store"),
        ("Qwen-72B", "H100-SXM5", "pool_tcp"),
    ],
)
def test_a_hit_loses_where_the_page_says_so(llm: str, gpu: str, path: str) -> None:
    words = f"ledger --llm {llm} --hardware {gpu} --tp 8 --tokens 2000 --cached 1900 --json"
    paths = json.loads(_run(*words.split()))["request"]["paths"]
    (found,) = (one for one in paths if one["path_id"] == path)
    assert found["verdict"] == "recompute_wins"
    assert found["ttft_change_s"]["value"] > 0
    (local,) = (one for one in paths if one["path_id"] == "dram_pcie")
    assert local["verdict"] == "move_wins"


def test_a_config_on_stdin_and_a_typo() -> None:
    config = {
        "model_type": "llama", "hidden_size": 64, "num_hidden_layers": 8, "vocab_size": 100,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
    }  # fmt: skip
    done = CliRunner().invoke(app, ["llm", "-", "--json"], input=json.dumps(config))
    assert json.loads(done.stdout)["kv_bytes_per_token"] == 8 * 64 * 2
    listed = json.loads(_run("llm", "--json"))["llms"]
    assert len(listed) == 60
    gpus = json.loads(_run("hardware", "--json"))["gpus"]
    assert len(gpus) == 27


def test_a_bare_number_of_lengths_is_refused() -> None:
    from kvtrace.errors import UsageError

    done = CliRunner().invoke(app, ["ledger", "--lengths", "1k"])
    assert isinstance(done.exception, UsageError)
    assert done.exception.code == "KVT-U047"
    table = _run("ledger", "--lengths", "1000", "--path", "dram_pcie")
    assert "TTFT change by length" in table
