"""A folder that holds every file and output that the documentation names."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path
from typing import Final

from tests.conftest import REPO
from tests.docs.shell import Shell

_STORY: Final = "kvtrace synth -o made --seed 7 --requests 150"
_FORMATS: Final = "--format mooncake --format vllm_text --format vllm_timing"
_POINTS: Final = """\
id,series,kind,metric,value,unit,tol_rel,model,gpu,n_gpus,tp,weight_dtype,kv_dtype,new_tokens,\
cached_tokens,concurrency,bytes,path,chunk_bytes,engine,provenance,source,note
P1,ours,prefill_ttft,ttft_ms,44,ms,0.4,Meta-Llama-3.1-8B,H100-SXM5,1,1,bf16,bf16,1000,0,1,,,,\
vLLM 0.14,measured,our bench,
"""
_CONFIG: Final = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "num_hidden_layers": 32,
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "torch_dtype": "bfloat16",
    "tie_word_embeddings": False,
}


def build(folder: Path) -> Shell:
    """Fill `folder` with logs, outputs and files under the names of the pages."""
    shell = Shell(folder)
    _must(shell, f"{_STORY} {_FORMATS}")
    made, logs = folder / "made", folder / "logs"
    trace = (made / "mooncake.jsonl").read_text(encoding="utf-8")
    server = (made / "vllm-server.log").read_bytes()
    logs.mkdir()
    (logs / "vllm-server.log.gz").write_bytes(gzip.compress(server, mtime=0))
    for name in ("mooncake.jsonl", "request-metrics.jsonl"):
        shutil.copy(made / name, logs / name)
    for side in ("cache-off", "cache-on"):
        shutil.copytree(logs, folder / "runs" / side)
    (folder / "vllm.log").write_bytes(server)
    (folder / "chat.jsonl").write_text(trace, encoding="utf-8")
    rows = "".join(json.dumps(row) + "\n" for row in _gateway())
    for name in ("gateway.jsonl", "custom.jsonl", "app.jsonl"):
        (folder / name).write_text(rows, encoding="utf-8")
    (folder / "team.toml").write_text('tz = "Europe/Berlin"\n', encoding="utf-8")
    (folder / "points.csv").write_text(_POINTS, encoding="utf-8")
    (folder / "config.json").write_text(json.dumps(_CONFIG), encoding="utf-8")
    plugins = Path("tests", "plugins", "ourgate")
    shutil.copytree(REPO / plugins, folder / plugins)
    shutil.copytree(REPO / "sample_traces", folder / "sample_traces")
    _must(shell, "kvtrace analyze logs/")
    for name in ("trace", "mooncake_conversation"):
        _must(shell, f"kvtrace export reports/logs --to mooncake -o {name}.jsonl.zst")
    for name in ("chat", "monday", "friday"):
        shutil.copytree(folder / "reports" / "logs", folder / "reports" / name)
    return shell


def _gateway() -> list[dict[str, object]]:
    return [
        {
            "id": f"r-{number}",
            "ts": 1_780_300_800_000 + 900 * number,
            "user": {"session": f"s-{number % 7}"},
            "usage": {
                "prompt_tokens": 1_000 + 10 * number,
                "prompt_tokens_details": {"cached_tokens": 16 * (number % 60)},
                "completion_tokens": 20 + number % 5,
            },
            "ttft_ms": 120 + number,
            "latency": 1.5 + number / 100,
            "code": 200,
        }
        for number in range(60)
    ]


def _must(shell: Shell, line: str) -> None:
    done = shell.run(line)
    assert done.code == 0, f"{line}\n{done.err}"
