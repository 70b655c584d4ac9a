"""Measures `kvtrace ingest` on a gateway's JSON with long prompts, against its decompressor.

The log is LiteLLM's: chats of 20 KB whose turns grow, written as plain text, `.zst` and `.gz`. Each
is read with counts only (`--no-hash-prompts`) and with keyed block hashing (by bytes), once into a
dataset by `kvtrace ingest`, once to rows alone (what comes after is the same for any trace with as
many blocks). References
in the same run: `zstd -dc` and `gzip -dc` to nowhere. Start-up (the same command on ten records)
is taken off, so that the figures are those of a long log. Targets: counts only at least 0.5 of
`zstd -dc` and 0.9 of `gzip -dc`; hashing at least 200 MB/s a core in at most 100 MB above the
memory of the ten records. Prints one JSON object a case.

    python scripts/bench/gateway.py --mb 1000
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

PROMPT_BYTES = 20_000
STEPS = 8
TEXT = (
    "the of and cache prompt server answer please file table model token which about under never"
    " seven walk green function return value index request latency because system between"
)


def records(megabytes: int, seed: int = 7) -> Iterator[bytes]:
    """Lines of the log, deterministic."""
    rng = random.Random(seed)
    text = " ".join(rng.choices(TEXT.split(), k=5_000_000))
    shared = text[:6_000]
    written = number = 0
    while written < megabytes * 10**6:
        start = rng.randrange(len(text) - PROMPT_BYTES)
        messages = [{"role": "system", "content": shared}]
        step = (PROMPT_BYTES - len(shared)) // STEPS
        for turn in range(STEPS):
            role = "assistant" if turn % 2 else "user"
            place = start + turn * step
            messages.append({"role": role, "content": text[place : place + step]})
        tokens = PROMPT_BYTES // 4 + rng.randrange(40)
        at = 1_780_000_000 + number / 20
        record = {
            "id": f"chatcmpl-{number:08d}",
            "litellm_call_id": f"call-{number:08d}",
            "call_type": "acompletion",
            "status": "success",
            "startTime": at,
            "endTime": at + 2,
            "completionStartTime": at + 0.25,
            "model": "tiny-llm",
            "prompt_tokens": tokens,
            "completion_tokens": 200,
            "total_tokens": tokens + 200,
            "metadata": {
                "usage_object": {"prompt_tokens_details": {"cached_tokens": tokens // 64 * 16}}
            },
            "messages": messages,
            "response": {"choices": [{"message": {"content": text[:800]}}]},
        }
        line = json.dumps(record).encode() + b"\n"
        yield line
        written += len(line)
        number += 1


def timed(command: list[str]) -> tuple[float, float, int]:
    """(wall seconds, processor seconds, peak resident bytes of the process) of one command."""
    started = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _pid, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - started
    if status:
        raise SystemExit(f"{' '.join(command)} failed")
    return seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024


def ingest(log: Path, folder: Path, *, is_hashing: bool) -> list[str]:
    """The command that reads the log into a folder of its own."""
    shutil.rmtree(folder, ignore_errors=True)
    flag = "--hash-prompts" if is_hashing else "--no-hash-prompts"
    return [sys.executable, "-m", "kvtrace", "ingest", str(log), "-o", str(folder), "-q", flag]


READ = """
import sys
from kvtrace.exec.progress import SilentProgress
from kvtrace.ingest.files.discover import discover
from kvtrace.ingest.hashing import KeyedHasher
from kvtrace.ingest.readfile import FileReader, IngestSettings
from kvtrace.ingest.registry import all_formats
settings = IngestSettings(hash_prompts=sys.argv[2] == "True")
reader = FileReader(settings, KeyedHasher(b"salt"), SilentProgress(), all_formats())
for file in discover([sys.argv[1]]).files:
    reader.read(file)
"""


def rows_alone(log: Path, *, is_hashing: bool) -> list[str]:
    """The command that reads the log to rows and forgets them."""
    return [sys.executable, "-c", READ, str(log), str(is_hashing)]


def middle(values: list[tuple[float, float, int]]) -> tuple[float, float, int]:
    """The median of each column."""
    wall, processor, peak = zip(*values, strict=True)
    return statistics.median(wall), statistics.median(processor), int(statistics.median(peak))


def measure(folder: Path, suffix: str, size: int, repeats: int) -> None:
    """The cases of one file: its decompressor, counts only, and hashing."""
    log, short = folder / f"log.jsonl{suffix}", folder / f"short.jsonl{suffix}"
    reference = {
        "": ["cat", str(log)],
        ".zst": ["zstd", "-dc", str(log)],
        ".gz": ["gzip", "-dc", str(log)],
    }[suffix]
    cases = [(is_whole, is_hashing) for is_whole in (False, True) for is_hashing in (False, True)]
    for is_whole, is_hashing in cases:
        runs: list[tuple[float, float, int]] = []
        starts: list[tuple[float, float, int]] = []
        references: list[tuple[float, float, int]] = []
        for _ in range(repeats):
            references.append(timed(reference))
            for file, times in ((short, starts), (log, runs)):
                command = rows_alone(file, is_hashing=is_hashing)
                if is_whole:
                    command = ingest(file, folder / "out", is_hashing=is_hashing)
                times.append(timed(command))
        wall, processor, peak = middle(runs)
        start_wall, start_processor, start_peak = middle(starts)
        reference_wall, _processor, _peak = middle(references)
        net, net_processor = wall - start_wall, processor - start_processor
        found = {
            "case": f"{suffix or 'plain'} {'hashing' if is_hashing else 'counts only'}",
            "to": "dataset" if is_whole else "rows",
            "megabytes": round(size / 1e6),
            "seconds": round(wall, 2),
            "start_seconds": round(start_wall, 2),
            "mb_per_s": round(size / net / 1e6),
            "mb_per_core_second": round(size / net_processor / 1e6),
            "share_of_reference": round(reference_wall / net, 2),
            "share_of_reference_with_start": round(reference_wall / wall, 2),
            "peak_mb": round(peak / 1e6),
            "above_start_mb": round((peak - start_peak) / 1e6),
            "cores": len(os.sched_getaffinity(0)),
        }
        sys.stdout.write(json.dumps(found) + "\n")
        sys.stdout.flush()


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mb", type=int, default=1000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", choices=("plain", "zst", "gz"), help="one way of storing")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with (folder / "log.jsonl").open("wb") as log:
            log.writelines(records(given.mb))
        with (folder / "log.jsonl").open("rb") as log:
            (folder / "short.jsonl").write_bytes(b"".join(log.readline() for _ in range(10)))
        size = (folder / "log.jsonl").stat().st_size
        for suffix, program in ((".zst", ["zstd", "-q", "-k"]), (".gz", ["gzip", "-k"]), ("", [])):
            if given.only not in (None, suffix.lstrip(".") or "plain"):
                continue
            for file in ("log.jsonl", "short.jsonl") if program else ():
                subprocess.run([*program, str(folder / file)], check=True)
            measure(folder, suffix, size, given.repeats)


if __name__ == "__main__":
    main()
