"""`sample_traces/`: one coherent story of one small service, from a seed."""

from __future__ import annotations

import gzip
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from kvtrace.errors import Location, OutputError
from kvtrace.synth.generate import generate
from kvtrace.synth.profile import sample_profile
from kvtrace.synth.story import StoryEngine, serve
from kvtrace.synth.writers import metrics_lines, server_log_lines, trace_lines

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

SAMPLE_SEED: Final = 7
"""The seed of the committed files."""
TRACE_NAME: Final = "router-trace.jsonl.zst"
LOG_NAME: Final = "vllm-server.log.gz"
METRICS_NAME: Final = "request-metrics.jsonl"


def build_samples(seed: int = SAMPLE_SEED) -> dict[str, bytes]:
    """The sample files by name, before compression."""
    profile = sample_profile(seed)
    engine = StoryEngine()
    served = serve(generate(profile), engine)
    log = server_log_lines(served, engine, block_size_tokens=profile.block_size_tokens)
    return {
        TRACE_NAME: _joined(trace_lines(served)),
        LOG_NAME: _joined(log),
        METRICS_NAME: _joined(metrics_lines(served)),
    }


def write_samples(directory: Path | str, seed: int = SAMPLE_SEED) -> list[Path]:
    """The paths of the sample files, written into `directory`.

    Raises:
        OutputError: the directory or a file cannot be written.
    """
    folder = Path(directory)
    paths = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in build_samples(seed).items():
            path = folder / name
            path.write_bytes(_packed(name, content))
            paths.append(path)
    except OSError as error:
        raise OutputError(
            "KVT-O010",
            "the sample files cannot be written",
            where=Location(path=str(folder)),
            cause=error.strerror,
            hint="choose a folder that can be written: kvtrace synth -o DIR",
        ) from error
    return paths


def _joined(lines: Iterable[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()


def _packed(name: str, content: bytes) -> bytes:
    """Packed as the name says; the same bytes again with the same libraries."""
    if name.endswith(".gz"):
        return gzip.compress(content, compresslevel=9, mtime=0)
    if name.endswith(".zst"):
        return zstd.compress(content, level=19)
    return content
